// The page: asks for the state every other second, shows the view that the address names, and
// obeys the keyboard. It only reads.

import { el, moveFocus, patchChildren } from './dom.js';
import { count, duration, plural } from './format.js';
import { problemsOf } from './problems.js';
import * as views from './views.js';

const POLL_MS = 2000;
const ANSWER_MS = 5000;
const HISTORY = 150;  // Polls: five minutes.

// By the first word of the address: the view, the document that it wants, and where Escape goes.
const ROUTES = {
  '': { view: views.overview, title: 'Overview' },
  nodes: { view: views.nodesView, title: 'Nodes' },
  plan: { view: views.planView, title: 'Plan',
    document: ({ query }) => ['tables', { match: query.get('match') ?? '', from: query.get('from') ?? 0 }] },
  jobs: { view: views.jobsView, title: 'Jobs' },
  sessions: { view: views.sessionsView, title: 'Sessions' },
  audit: { view: views.auditView, title: 'Audit', document: () => ['audit', {}], is_live: true },
  node: { view: views.nodeView, title: 'Node', within: 'nodes' },
  device: { view: views.deviceView, title: 'Device', within: 'nodes', up: ({ numbers }) => `#/node/${numbers[0]}`,
    document: ({ numbers }) => ['device', { node: numbers[0], device: numbers[1] }] },
  table: { view: views.tableView, title: 'Table', within: 'plan', up: () => lastPlan,
    document: ({ numbers }) => ['table', { id: numbers[0], copy: numbers[1] ?? 0, job: runningJob() }] },
  job: { view: views.jobView, title: 'Job', within: 'jobs', is_live: true,
    document: ({ numbers }) => ['job', { id: numbers[0] }] },
};
const TABS = ['', 'nodes', 'plan', 'jobs', 'sessions', 'audit'];

const byId = (id) => document.getElementById(id);
const main = byId('main');

let state = null;
let trouble = '';        // Why there is no newer state; empty: there is.
let heardAt = 0;         // By performance.now().
let history = [];
let documents = {};      // Of the route: by name, and `error`.
let lastPlan = '#/plan';

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const words = path.split('/');
  const name = Object.hasOwn(ROUTES, words[0]) ? words[0] : '';
  return { ...ROUTES[name], name, numbers: words.slice(1).map(Number), query: new URLSearchParams(query) };
}

const runningJob = () => state?.jobs?.find((job) => ['running', 'paused'].includes(job.state))?.id ?? 0;

// ---------------------------------------------------------------- asking

async function ask(name, parameters = {}) {
  const reply = await fetch(`${name}.json?${new URLSearchParams(parameters)}`, { signal: AbortSignal.timeout(ANSWER_MS) });
  const document = await reply.json();
  if (!reply.ok) throw new Error(document.error ?? `HTTP status ${reply.status}`);
  return document;
}

async function askState() {
  try {
    state = await ask('state');
    trouble = '';
    heardAt = performance.now();
    if (state.role === 'leader') history = [...history, views.loadOf(state)].slice(-HISTORY);
  } catch (error) {
    trouble = error.name === 'TimeoutError' ? 'it does not answer' : error.message;
  }
}

async function askDocument() {
  const asked = route();
  const hash = location.hash;
  if (!asked.document || state?.role !== 'leader') return;
  const [name, parameters] = asked.document(asked);
  let answer;
  try {
    answer = { [name]: await ask(name, parameters) };
  } catch (error) {
    answer = { ...documents, error: error.message };
  }
  if (location.hash !== hash) return;  // Another view is shown by now.
  documents = { ...answer, name: asked.name, plan: state.cluster.plan_version, at: performance.now() };
}

function isDocumentOld() {
  const { document, is_live } = route();
  if (!document || state?.role !== 'leader') return false;
  const age = performance.now() - (documents.at ?? -Infinity);
  return documents.plan !== state.cluster.plan_version || age > (is_live || runningJob() ? 2 : 10) * POLL_MS;
}

// ---------------------------------------------------------------- showing

let hashShown = null;

function showHeader() {
  const problems = state === null ? [] : problemsOf(state);
  const verdict = byId('verdict');
  const silent = performance.now() - heardAt;
  let [kind, words] = ['good', 'All is well'];
  if (state === null) [kind, words] = ['quiet', trouble ? `No answer: ${trouble}` : 'Asking…'];
  else if (trouble) [kind, words] = ['bad', `No news for ${duration(silent)}: ${trouble}`];
  else if (state.role !== 'leader') [kind, words] = ['quiet', 'Standby'];
  else if (problems.length) {
    kind = problems[0].level;
    words = problems.length === 1 ? problems[0].text : `${plural(problems.length, 'matter')} to look at`;
  }
  verdict.className = `verdict ${kind}`;
  if (verdict.textContent !== words) verdict.textContent = words;
  document.body.classList.toggle('stale', trouble !== '');
  const cluster = state?.cluster;
  byId('cluster').textContent = cluster ? cluster.id.slice(0, 12) : '';
  const time = cluster?.time_unix_ms ?? state?.time_unix_ms;
  byId('pulse').textContent = time ? `as of ${new Date(time).toISOString().slice(11, 19)} UTC` : '';
  byId('build').textContent = cluster
    ? `Coordinator ${cluster.version}, up ${duration(cluster.uptime_ms)}, plan ${count(cluster.plan_version)}` : '';
  document.title = kind === 'good' ? 'Embla' : `${problems.length || '!'} · Embla`;
}

function showTabs(current) {
  patchChildren(byId('views'), TABS.map((name, i) =>
    el('a', { href: `#/${name}`, 'aria-current': (current.within ?? current.name) === name ? 'page' : null,
      'aria-keyshortcuts': String(i + 1) }, ROUTES[name].title)));
}

function show() {
  const current = route();
  const isNew = hashShown !== location.hash;
  if (isNew) {
    if (documents.name !== current.name) documents = {};
    documents = { ...documents, name: current.name, at: undefined };
    hashShown = location.hash;
    if (current.name === 'plan') lastPlan = location.hash;
  }
  showHeader();
  showTabs(current);
  if (state === null) return patchChildren(main, []);
  const made = state.role === 'leader' ? current.view({ state, history, route: current, documents }) : views.standby({ state });
  patchChildren(main, made.flat(Infinity).filter(Boolean));
}

async function refreshDocument() {
  await askDocument();
  show();
}

async function onRoute() {
  const keepsFocus = document.activeElement?.id === 'find';
  show();
  if (!keepsFocus) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  await refreshDocument();
}

async function poll() {
  if (!document.hidden) {
    await askState();
    if (isDocumentOld()) await askDocument();
    show();
  }
  setTimeout(poll, POLL_MS);
}

// ---------------------------------------------------------------- keyboard

function goUp() {
  const current = route();
  if (current.up) location.hash = current.up(current);
  else location.hash = current.within ? `#/${current.within}` : '#/';
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const isTyping = document.activeElement?.tagName === 'INPUT';
  if (event.key === 'Escape') {
    if (isTyping) document.activeElement.blur();
    else goUp();
    return;
  }
  if (isTyping) return;
  if (/^[1-6]$/.test(event.key)) {
    location.hash = `#/${TABS[Number(event.key) - 1]}`;
    return;
  }
  if (event.key === '/') {
    event.preventDefault();
    if (route().name !== 'plan') location.hash = lastPlan;
    setTimeout(() => byId('find')?.focus());
    return;
  }
  if (document.activeElement === main && event.key === 'ArrowDown') {
    const first = main.querySelector('[data-arrows] a[href]');
    first?.focus();
    if (first) event.preventDefault();
    return;
  }
  if (moveFocus(event)) event.preventDefault();
}

let typing = 0;
function onInput(event) {
  if (event.target.id !== 'find') return;
  clearTimeout(typing);
  typing = setTimeout(() => {
    location.replace(`#/plan?${new URLSearchParams({ match: event.target.value })}`);
  }, 200);
}

document.addEventListener('keydown', onKey);
document.addEventListener('input', onInput);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener('hashchange', onRoute);
document.addEventListener('visibilitychange', () => { if (!document.hidden) askState().then(show); });
show();
poll();
