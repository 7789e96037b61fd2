// What of the state asks for a person, the worst first: {level: 'bad' | 'warn', text, href}.

import { bytes, duration, percent, plural } from './format.js';

const FULL = 0.9;

function ofNode(node) {
  const href = `#/node/${node.id}`;
  const found = [];
  const add = (level, text) => found.push({ level, text, href });
  if (node.state === 'down') {
    add('bad', `Node ${node.name} is down` +
      (node.silent_ms === null ? '' : `: silent for ${duration(node.silent_ms)}`));
  }
  if (node.state === 'unlinked') add('warn', `Node ${node.name} has no link to the coordinator`);
  if (node.failure) add('bad', `Node ${node.name} cannot install the plan: ${node.failure}`);
  node.devices.forEach((device, index) => {
    if (device.stopped) add('bad', `Device ${index} of ${node.name} has stopped: ${device.stopped}`);
    const used = device.used_bytes ?? device.planned_bytes;
    if (device.memory_bytes > 0 && used > FULL * device.memory_bytes) {
      add('warn', `Device ${index} of ${node.name} is full: ${bytes(used)} are used, ` +
        percent(used / device.memory_bytes));
    }
  });
  return found;
}

function ofJob(job) {
  const href = `#/job/${job.id}`;
  const found = [];
  if (['running', 'cancelling'].includes(job.state) && job.waits_for) {
    found.push({ level: 'warn', text: `Job ${job.id} makes no progress: it ${job.waits_for}`, href });
  }
  if (job.state === 'paused') found.push({ level: 'warn', text: `Job ${job.id} is paused`, href });
  return found;
}

export function problemsOf(state) {
  if (state.role !== 'leader') return [];
  const { cluster, nodes, jobs } = state;
  const found = [...nodes.flatMap(ofNode), ...jobs.flatMap(ofJob)];
  // Jobs of long ago are history.
  const last = jobs.find((job) => !['queued', 'running', 'paused', 'cancelling'].includes(job.state));
  if (last?.state === 'failed') {
    found.push({ level: 'bad', text: `Job ${last.id} has failed: ${last.error}`, href: `#/job/${last.id}` });
  }
  if (cluster.tables_aside > 0) {
    found.push({ level: 'warn', text: `${plural(cluster.tables_aside, 'table')} kept aside, not served`, href: '#/plan' });
  }
  const versions = new Set(nodes.map((node) => node.version).filter(Boolean));
  if (versions.size > 1) {
    found.push({ level: 'warn', text: `Nodes are of ${versions.size} builds`, href: '#/nodes' });
  }
  return found.sort((a, b) => (a.level === b.level ? 0 : a.level === 'bad' ? -1 : 1));
}
