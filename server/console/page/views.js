// The views: each makes elements from the state, and from the documents of its route.

import { bar, colourOf, placeName, sparkline, tablePicture } from './draw.js';
import { el } from './dom.js';
import { bytes, count, duration, instant, millis, percent, plural, rate } from './format.js';
import { problemsOf } from './problems.js';

const JOB_IS_ON = ['queued', 'running', 'paused', 'cancelling'];

const link = (href, ...children) => el('a', { href }, children);
const panel = (title, ...children) =>
  el('section', { class: 'panel' }, title && el('h2', null, title), children);
const empty = (...words) => el('p', { class: 'muted' }, words);
const badge = (kind, text) => el('span', { class: `badge ${kind}` }, text);

// Columns: {name, kind: 'number' or 'short', or neither}; rows: {key, cells}.
function tableOf(label, columns, rows) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label },
    el('table', { 'data-arrows': true, 'aria-label': label },
      el('thead', null, el('tr', null, columns.map(({ name, kind }) =>
        el('th', { scope: 'col', class: kind }, name)))),
      el('tbody', null, rows.map(({ key, cells }) =>
        el('tr', { 'data-key': key }, cells.map((cell, i) =>
          el('td', { class: columns[i].kind }, cell)))))));
}

const text = (...names) => names.map((name) => ({ name }));
const numbers = (...names) => names.map((name) => ({ name, kind: 'number' }));
const shorts = (...names) => names.map((name) => ({ name, kind: 'short' }));

function facts(pairs) {
  return el('dl', null, pairs.filter(Boolean).map(([name, value]) =>
    el('div', null, el('dt', null, name), el('dd', null, value))));
}

// ---------------------------------------------------------------- what several views show

const used = (device) => device.used_bytes ?? device.planned_bytes;
const sum = (values) => values.reduce((a, b) => a + b, 0);

function callsOf(node, method) {
  return node.calls.find((calls) => calls.method === method) ?? null;
}

export function loadOf(state) {
  const of = (method) => state.nodes.map((node) => callsOf(node, method)).filter(Boolean);
  const rateOf = (method) => (of(method).length ? sum(of(method).map((c) => c.per_second)) : null);
  const slowest = (method) => {
    const times = of(method).filter((c) => c.per_second > 0).map((c) => c.p99_ms);
    return times.length ? Math.max(...times) : null;
  };
  return { lookups: rateOf('Lookup'), lookup_p99: slowest('Lookup'),
    updates: rateOf('Update'), update_p99: slowest('Update') };
}

function memoryBar(device, label) {
  const of = (value) => (device.memory_bytes > 0 ? value / device.memory_bytes : 0);
  const share = of(used(device));
  return bar([{ share, kind: share > 0.9 ? 'fill full' : 'fill' }],
    `${label}: ${bytes(used(device))} of ${bytes(device.memory_bytes)} used`);
}

function nodeState(node) {
  if (node.state === 'down') return badge('bad', 'down');
  if (node.failure) return badge('bad', 'failing');
  if (node.state === 'unlinked') return badge('warn', 'no link');
  if (node.drained) return badge('quiet', 'drained');
  return badge('good', 'live');
}

function jobState(job) {
  const kind = { failed: 'bad', paused: 'warn', cancelling: 'warn', running: 'busy', queued: 'quiet' };
  return badge(kind[job.state] ?? 'quiet', job.state);
}

function jobProgress(job) {
  const share = job.units_total > 0 ? job.units_moved / job.units_total : job.state === 'done' ? 1 : 0;
  return el('div', { class: 'progress' },
    bar([{ share, kind: 'fill' }, { share: job.units_total > 0 ? job.units_open / job.units_total : 0, kind: 'open' }],
      `${percent(share)} of the units have moved`),
    el('span', { class: 'number' }, percent(share)));
}

function jobPanel(job) {
  return el('article', { class: 'job', 'data-key': `job-${job.id}` },
    el('p', null, jobState(job), ' ', link(`#/job/${job.id}`, `Job ${job.id}: ${job.description}`)),
    jobProgress(job),
    el('p', { class: 'muted' },
      `${count(job.units_moved)} of ${plural(job.units_total, 'unit')}, ${bytes(job.bytes_moved)} sent of ` +
      `${bytes(job.bytes_total)}`,
      job.seconds_left !== null && job.state === 'running' && job.seconds_left > 0 &&
        `, about ${duration(1000 * job.seconds_left)} left`,
      job.waits_for && `; ${job.waits_for}`));
}

function problemList(state) {
  const problems = problemsOf(state);
  if (problems.length === 0) return null;
  return el('section', { class: 'panel', 'aria-label': 'Needs attention' }, el('h2', null, 'Needs attention'),
    el('ul', { class: 'problems', 'data-arrows': true }, problems.slice(0, 20).map(({ level, text, href }) =>
      el('li', null, badge(level, level === 'bad' ? 'act' : 'look'), ' ', link(href, text)))),
    problems.length > 20 && empty(`and ${problems.length - 20} more`));
}

// ---------------------------------------------------------------- overview

function tile(label, value, more, picture, href) {
  return el('a', { class: 'tile', href },
    el('span', { class: 'label' }, label), el('span', { class: 'value' }, value),
    el('span', { class: 'more' }, more), picture);
}

function deviceStrip(state, node) {
  return el('a', { class: 'strip', href: `#/node/${node.id}`, 'data-key': `node-${node.id}` },
    el('span', { class: 'name' }, node.name), nodeState(node),
    el('span', { class: 'cells' }, node.devices.map((device, d) =>
      el('span', { class: 'device' }, memoryBar(device, `Device ${d}`)))),
    el('span', { class: 'number muted' }, rate(callsOf(node, 'Lookup')?.per_second)),
    el('span', { class: 'number muted' }, millis(callsOf(node, 'Lookup')?.p99_ms)));
}

export function overview({ state, history }) {
  const { cluster, nodes, jobs, sessions } = state;
  const devices = nodes.flatMap((node) => node.devices);
  const memory = sum(devices.map((device) => device.memory_bytes));
  const inUse = sum(devices.map(used));
  const load = loadOf(state);
  const on = jobs.filter((job) => JOB_IS_ON.includes(job.state));
  const line = (name, label) => sparkline(history.map((point) => point[name]), label);
  return [
    problemList(state),
    el('div', { class: 'tiles', 'data-arrows': true },
      tile('Nodes', `${cluster.nodes_live} / ${cluster.nodes_total}`, 'live', bar(
        [{ share: cluster.nodes_total ? cluster.nodes_live / cluster.nodes_total : 0, kind: 'fill' }], 'Live nodes'), '#/nodes'),
      tile('Memory', bytes(inUse), `of ${bytes(memory)}`,
        bar([{ share: memory ? inUse / memory : 0, kind: inUse > 0.9 * memory ? 'fill full' : 'fill' }], 'Memory in use'), '#/nodes'),
      tile('Lookups', rate(load.lookups), `p99 ${millis(load.lookup_p99)}, slowest node`,
        line('lookups', 'Lookups per second, last minutes'), '#/nodes'),
      tile('Updates', rate(load.updates), `p99 ${millis(load.update_p99)}, slowest node`,
        line('updates', 'Updates per second, last minutes'), '#/nodes'),
      tile('Tables', count(cluster.tables), `plan ${cluster.plan_version}`, null, '#/plan'),
      tile('Sessions', count(sessions.open), `${count(sessions.expired)} expired`, null, '#/sessions'),
      tile('Jobs', count(on.length), on.length ? 'on' : 'none on', null, '#/jobs')),
    on.length > 0 && panel('Jobs', on.map(jobPanel)),
    panel('Devices', nodes.length === 0 ? empty('No node has registered yet.')
      : el('div', { class: 'strips', 'data-arrows': true },
        el('div', { class: 'strip head muted', 'aria-hidden': 'true' }, el('span', null, 'Node'), el('span', null, 'State'),
          el('span', null, 'Memory by device'), el('span', { class: 'number' }, 'Lookups'), el('span', { class: 'number' }, 'p99')),
        nodes.map((node) => deviceStrip(state, node)))),
  ];
}

// ---------------------------------------------------------------- nodes

export function nodesView({ state }) {
  const columns = [...text('Node', 'State', 'Memory'), ...numbers('Used', 'Busy', 'Lookups', 'p50', 'p99', 'Updates', 'p99'),
    ...numbers('Plan', 'Heard'), ...text('Build')];
  const rows = state.nodes.map((node) => {
    const whole = { memory_bytes: sum(node.devices.map((d) => d.memory_bytes)), used_bytes: sum(node.devices.map(used)) };
    const busy = node.devices.map((d) => d.busy_ratio).filter((ratio) => ratio !== null);
    const [lookup, update] = [callsOf(node, 'Lookup'), callsOf(node, 'Update')];
    return { key: `node-${node.id}`, cells: [
      link(`#/node/${node.id}`, node.name), nodeState(node), memoryBar(whole, 'Memory'), bytes(whole.used_bytes),
      busy.length ? percent(Math.max(...busy)) : '–',
      rate(lookup?.per_second), millis(lookup?.p50_ms), millis(lookup?.p99_ms), rate(update?.per_second), millis(update?.p99_ms),
      count(node.plan_version), node.silent_ms === null ? '–' : `${duration(node.silent_ms)} ago`, node.version || '–'] };
  });
  return [panel('Nodes', rows.length ? tableOf('Nodes', columns, rows) : empty('No node has registered yet.'),
    state.cluster.nodes_total > rows.length && empty(`The first ${rows.length} of ${count(state.cluster.nodes_total)} nodes.`))];
}

export function nodeView({ state, route }) {
  const node = state.nodes.find(({ id }) => id === route.numbers[0]);
  if (!node) return [panel('Node', empty('There is no such node any more.'))];
  const rows = node.devices.map((device, d) => ({ key: `device-${d}`, cells: [
    link(`#/device/${node.id}/${d}`, `Device ${d}`), device.kind, memoryBar(device, `Device ${d}`), bytes(used(device)),
    bytes(device.planned_bytes), bytes(device.memory_bytes), percent(device.busy_ratio), count(device.tables), count(device.slices),
    device.stopped ? badge('bad', device.stopped) : badge('good', 'serves')] }));
  const calls = node.calls.map((c) => ({ key: c.method, cells: [c.method, rate(c.per_second), millis(c.p50_ms), millis(c.p99_ms)] }));
  return [
    panel(['Node ', node.name, ' ', nodeState(node)],
      facts([['Address', el('code', null, node.address)], ['Plan installed', count(node.plan_version)],
        ['Last heard', node.silent_ms === null ? 'not since the coordinator started' : `${duration(node.silent_ms)} ago`],
        ['Build', node.version || '–'], ['New slices', node.drained ? 'none: it is drained' : 'may come'],
        node.failure && ['Cannot install plan ' + node.failed_plan_version, node.failure]])),
    panel('Devices', tableOf('Devices',
      [...text('Device', 'Kind', 'Memory'), ...numbers('Used', 'Planned', 'Memory', 'Busy', 'Tables', 'Slices'), ...text('State')], rows)),
    panel('Calls of the last seconds', calls.length
      ? tableOf('Calls', [...text('Method'), ...numbers('Rate', 'p50', 'p99')], calls) : empty('Not known.')),
  ];
}

export function deviceView({ state, route, documents }) {
  const [nodeId, d] = route.numbers;
  const node = state.nodes.find(({ id }) => id === nodeId);
  const device = node?.devices[d];
  if (!device) return [panel('Device', empty('There is no such device any more.'))];
  const found = documents.device;
  const rows = (found?.tables ?? []).map((table) => ({ key: `table-${table.id}`, cells: [
    link(`#/table/${table.id}`, table.name), bytes(table.placed.bytes),
    percent(device.memory_bytes ? table.placed.bytes / device.memory_bytes : 0), count(table.placed.rows), count(table.placed.slices)] }));
  return [
    panel(['Device ', placeName(state.nodes, nodeId, d), ' ',
      device.stopped ? badge('bad', 'stopped') : nodeState(node)],
      facts([['Kind', device.kind], ['Used', `${bytes(device.used_bytes)} of ${bytes(device.memory_bytes)}`],
        ['Planned', bytes(device.planned_bytes)], ['Busy', percent(device.busy_ratio)],
        device.stopped && ['Stopped', device.stopped]]),
      memoryBar(device, 'Memory')),
    panel('Tables here', !found ? empty('…') : rows.length === 0 ? empty('None.')
      : tableOf('Tables', [...text('Table'), ...numbers('Bytes', 'Of memory', 'Rows', 'Slices')], rows),
    found && found.total > rows.length && empty(`The largest ${rows.length} of ${count(found.total)} tables.`)),
  ];
}

// ---------------------------------------------------------------- plan

function kindsOf(table) {
  return [table.sharding, table.is_zch && 'any ids', table.is_synchronous && 'synchronous',
    table.copies > 1 && `${table.copies} ${table.copies_are}`].filter(Boolean).join(', ');
}

function legend(state, rectangles) {
  const seen = new Map();
  for (const [, , , , node, device] of rectangles) seen.set(`${node}/${device}`, [node, device]);
  return el('ul', { class: 'legend' }, [...seen.values()].slice(0, 16).map(([node, device]) =>
    el('li', null, swatch(state, node, device), ' ', placeName(state.nodes, node, device))),
  seen.size > 16 && el('li', null, `and ${seen.size - 16} more devices`));
}

function swatch(state, node, device) {
  return el('svg', { class: 'swatch', viewBox: '0 0 10 10', 'aria-hidden': 'true' },
    el('rect', { width: 10, height: 10, rx: 2, fill: colourOf(state.nodes, node, device) }));
}

export function planView({ state, route, documents }) {
  const page = documents.tables;
  const match = route.query.get('match') ?? '';
  const from = Number(route.query.get('from') ?? 0);
  const at = (start) => `#/plan?${new URLSearchParams({ match, from: start })}`;
  const cards = (page?.tables ?? []).map((table) =>
    el('a', { class: 'card', href: `#/table/${table.id}`, 'data-key': `table-${table.id}` },
      tablePicture({ table, picture: table.picture, nodes: state.nodes, height: 400 }),
      el('span', { class: 'name' }, table.name, table.is_aside && [' ', badge('warn', 'aside')]),
      el('span', { class: 'muted' }, `${count(table.rows)} × ${table.dim} ${table.dtype}`),
      el('span', { class: 'muted' }, `${bytes(table.placed.bytes)} on ${plural(table.devices, 'device')}`),
      el('span', { class: 'muted' }, kindsOf(table))));
  return [
    el('section', { class: 'panel' },
      el('div', { class: 'bar-of-tools' },
        el('h2', null, 'Plan ', page && el('span', { class: 'muted' }, String(page.plan_version))),
        el('label', null, 'Find a table ', el('input', { id: 'find', type: 'search', value: match, autocomplete: 'off', spellcheck: 'false' }))),
      !page ? empty('…') : cards.length === 0 ? empty(page.total ? 'No table has that in its name.' : 'There are no tables yet.')
        : el('div', { class: 'cards', 'data-arrows': true }, cards),
      page && page.matched > page.page && el('p', { class: 'pager', 'data-arrows': true },
        from > 0 && link(at(Math.max(0, from - page.page)), 'Larger ones'),
        ` ${count(from + 1)} to ${count(from + cards.length)} of ${count(page.matched)}, the largest first `,
        from + cards.length < page.matched && link(at(from + page.page), 'Smaller ones'))),
  ];
}

export function tableView({ state, route, documents }) {
  const found = documents.table;
  if (!found) return [panel('Table', empty('…'))];
  const { table, picture, devices, moves } = found;
  const copies = table.copies > 1 && el('p', { class: 'pager', 'data-arrows': true },
    table.copies_are === 'groups' ? 'Group ' : 'Copy ',
    Array.from({ length: table.copies }, (_, copy) =>
      el('a', { href: `#/table/${table.id}/${copy}`, 'aria-current': copy === picture.copy ? 'true' : null }, copy)));
  const rows = devices.map(({ node, device, placed }) => ({ key: `${node}/${device}`, cells: [
    [swatch(state, node, device), ' ', link(`#/device/${node}/${device}`, placeName(state.nodes, node, device))],
    bytes(placed.bytes), percent(table.placed.bytes ? placed.bytes / table.placed.bytes : 0), count(placed.rows), count(placed.slices)] }));
  return [
    panel(['Table ', table.name, table.is_aside && [' ', badge('warn', 'kept aside')]],
      copies,
      el('figure', null,
        el('div', { class: 'axis across muted' }, `${table.dim} columns →`),
        tablePicture({ table, picture, nodes: state.nodes, moves, links: true }),
        el('figcaption', { class: 'muted' }, `↓ ${count(table.rows)} rows. `,
          picture.is_exact ? `${plural(picture.rectangles.length, 'slice')}.`
            : `${plural(table.placed.slices, 'slice')}, too many to draw: each place shows the device of its centre.`,
          moves.length > 0 && ` Frames: what the running job moves.`)),
      legend(state, picture.rectangles)),
    panel('Table', facts([['Sharding', kindsOf(table)], ['Type', table.dtype], ['Optimizer', table.optimizer],
      ['Size', `${bytes(table.placed.bytes)}, with all copies and optimizer state`],
      ['Units', `${count(table.row_granules)} × ${count(table.column_granules)}`], ['Durability', table.durability]])),
    panel('Devices', tableOf('Devices', [...text('Device'), ...numbers('Bytes', 'Of the table', 'Rows', 'Slices')], rows),
      table.devices > rows.length && empty(`The first ${rows.length} of ${count(table.devices)} devices.`)),
  ];
}

// ---------------------------------------------------------------- jobs, sessions, audit

export function jobsView({ state }) {
  const on = state.jobs.filter((job) => JOB_IS_ON.includes(job.state));
  const over = state.jobs.filter((job) => !JOB_IS_ON.includes(job.state));
  const rows = over.map((job) => ({ key: `job-${job.id}`, cells: [
    link(`#/job/${job.id}`, `${job.id}`), jobState(job), job.description, count(job.units_moved), bytes(job.bytes_moved),
    millis(job.pause_p99_ms), duration(job.ended_unix_ms - job.started_unix_ms), instant(job.ended_unix_ms)] }));
  return [
    panel('On', on.length ? on.map(jobPanel) : empty('No job is on.')),
    panel('Over', rows.length ? tableOf('Jobs that are over',
      [...text('Job', 'State', 'What'), ...numbers('Units', 'Sent', 'Pause p99', 'Took', 'Ended')], rows) : empty('None.')),
  ];
}

export function jobView({ state, route, documents }) {
  const job = documents.job?.job ?? state.jobs.find(({ id }) => id === route.numbers[0]);
  if (!job) return [panel('Job', empty('…'))];
  const moves = documents.job?.moves ?? [];
  const total = documents.job?.moves_total ?? 0;
  const place = ({ node, device }) => link(`#/device/${node}/${device}`, placeName(state.nodes, node, device));
  const rows = moves.map((move, i) => ({ key: `move-${i}`, cells: [
    link(`#/table/${move.table_id}`, move.table), `${count(move.row_begin)} to ${count(move.row_begin + move.rows - 1)}`,
    `${move.column_begin} to ${move.column_begin + move.columns - 1}`, place(move.from), place(move.to), count(move.units), bytes(move.bytes)] }));
  return [
    panel(['Job ', String(job.id), ' ', jobState(job)],
      el('p', null, job.description), jobProgress(job),
      job.error && el('p', null, badge('bad', 'error'), ' ', job.error),
      job.waits_for && el('p', null, badge('warn', 'no progress'), ' ', job.waits_for),
      facts([['Units', `${count(job.units_moved)} of ${count(job.units_total)}, ${count(job.units_open)} open, ` +
          `${count(job.units_handed_over)} handed over`],
        ['Sent', `${bytes(job.bytes_moved)} for ${bytes(job.bytes_total)} of rows`],
        ['Limit', job.bytes_per_second_max ? `${bytes(job.bytes_per_second_max)} per second and node` : 'none'],
        ['Writes paused', `p50 ${millis(job.pause_p50_ms)}, p99 ${millis(job.pause_p99_ms)}, most ${millis(job.pause_max_ms)}`],
        ['Began', instant(job.started_unix_ms)],
        job.ended_unix_ms !== null ? ['Ended', instant(job.ended_unix_ms)]
          : ['Left', job.seconds_left === null ? 'not known' : `about ${duration(1000 * job.seconds_left)}`]])),
    panel('Moves', rows.length ? tableOf('Moves', [...text('Table'), ...numbers('Rows', 'Columns'), ...text('From', 'To'), ...numbers('Units', 'Bytes')], rows)
      : empty(documents.job ? 'None of rows.' : '…'), total > rows.length && empty(`The first ${rows.length} of ${count(total)} moves.`)),
  ];
}

export function sessionsView({ state }) {
  const { sessions } = state;
  const rows = sessions.first.map((session) => ({ key: session.id, cells: [
    el('code', null, session.id), session.trainer || '–', session.rank === null ? '–' : `${session.rank} of ${session.ranks}`,
    session.watches > 0 ? badge('good', 'there') : badge('quiet', 'lease runs')] }));
  return [panel('Sessions',
    facts([['Open', count(sessions.open)], ['Opened', count(sessions.opened)], ['Closed', count(sessions.closed)],
      ['Of these expired', count(sessions.expired)]]),
    rows.length ? tableOf('Sessions', [...text('Session', 'Trainer', 'Rank', 'Client')], rows) : empty('No session is open.'),
    sessions.open > rows.length && empty(`The first ${rows.length} of ${count(sessions.open)} sessions.`))];
}

export function auditView({ documents }) {
  const found = documents.audit;
  if (!found) return [panel('Audit log', empty(documents.error ?? '…'))];
  const rows = found.calls.map((call, i) => ({ key: `${call.time}-${i}`, cells: [
    call.time.replace('T', ' ').slice(0, 19), call.who || 'over plaintext', call.method.slice(call.method.indexOf('/') + 1),
    call.result === 'OK' ? badge('good', 'OK') : badge('bad', call.result), el('code', null, call.what), call.message] }));
  return [panel('Audit log', rows.length ? tableOf('Audit log',
    [...shorts('Time', 'Who', 'Call', 'Result'), ...text('What', 'Message')], rows)
    : empty('Nothing was changed yet.'))];
}

export function standby({ state }) {
  const { leader } = state;
  let safe = null;
  try {
    const url = new URL(leader.console);
    if (['http:', 'https:'].includes(url.protocol)) safe = url.href;
  } catch {
    safe = null;  // Not known, or no URL.
  }
  return [panel('Standby', el('p', null, 'This coordinator does not lead: it stands by, to take over within seconds.'),
    leader.coordinator
      ? facts([['Leader', el('code', null, leader.coordinator)], ['For operators', el('code', null, leader.admin)],
        ['Its console', safe ? link(safe, safe) : 'not known: it serves none that others reach']])
      : empty('None leads at present.'))];
}
