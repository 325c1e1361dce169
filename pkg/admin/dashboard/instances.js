// The instances. Only the rows that can be seen are elements, so that thousands cost nothing.

import { arrange, byId, el, setText, count, duration, since, phase } from './dom.js';

const phases = ['pending', 'running', 'draining', 'deleting'];
const narrow = matchMedia('(max-width: 74rem)');
const view = byId('instance-view');
const body = byId('instance-rows');
let list = [];
let store;

export const health = (instance) => {
  if (instance.last_error) return ['bad', instance.last_error];
  if (instance.unhealthy_reason) return ['bad', instance.unhealthy_reason];
  if (phase(instance.phase) === 'running' && !instance.connected) return ['warn', 'agent not connected'];
  return phase(instance.phase) === 'running' ? ['good', 'healthy'] : ['dim', instance.reason || '—'];
};

const files = (instance) => {
  if (phase(instance.phase) !== 'running') return ['dim', ''];
  if (instance.files_up_to_date === undefined) return ['dim', ''];
  return instance.files_up_to_date ? ['good', 'up to date'] : ['warn', 'behind'];
};

// certificate is how long the certificate of a connected agent is valid; agents renew theirs in time.
const certificate = (instance) => {
  if (!instance.certificate_expires_at) return ['dim', ''];
  const left = Date.parse(instance.certificate_expires_at) - Date.now();
  return left > 0 ? ['', `${duration(left)} left`] : ['bad', 'expired'];
};

const made = (instance) => [instance.instance_type, instance.zone || instance.provider_kind, instance.subnet].filter(Boolean).join(', ');

const orders = {
  group: (a, b) => a.group.localeCompare(b.group) || (a.id < b.id ? -1 : 1),
  new: (a, b) => (b.created_at || '').localeCompare(a.created_at || '') || (a.id < b.id ? -1 : 1),
  old: (a, b) => (a.created_at || '').localeCompare(b.created_at || '') || (a.id < b.id ? -1 : 1),
  bad: (a, b) => Number(health(b)[0] === 'bad') - Number(health(a)[0] === 'bad') || orders.group(a, b),
};

function matches(instance, words, wanted) {
  if (wanted && phase(instance.phase) !== wanted) return false;
  const text = [instance.id, instance.group, instance.shard, instance.instance_type, instance.zone, instance.provider_id,
    instance.hostname, ...(instance.ips || [])].join(' ').toLowerCase();
  return words.every((word) => text.includes(word));
}

function select() {
  const words = byId('find').value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = byId('phase').value;
  list = [...store.instances.values()].filter((instance) => matches(instance, words, wanted)).sort(orders[byId('order').value]);
  const all = count(store.instances.size, 'instance');
  setText(byId('instance-count'), list.length === store.instances.size ? all : `${list.length.toLocaleString()} of ${all}`);
}

// make makes the row of an instance, without its texts.
function make(id) {
  const open = el('button', { type: 'button', class: 'plain', 'data-id': id }, id);
  open.onclick = () => details(id);
  const line = el('div', { role: 'row', class: 'row' }, el('span', { role: 'cell' }, open));
  for (let n = 0; n < 7; n++) line.append(el('span', { role: 'cell' }));
  return line;
}

// fill shows an instance in its row.
function fill(line, instance, n, height) {
  const [, group, now, age, state, set, valid, from] = line.children;
  setText(group, `${instance.group || '—'} · ${instance.shard}`);
  setText(now, phase(instance.phase));
  setText(age, since(instance.created_at));
  for (const [cell, [kind, words]] of [[state, health(instance)], [set, files(instance)], [valid, certificate(instance)]]) {
    setText(cell, words);
    cell.className = kind;
  }
  setText(from, made(instance));
  for (const cell of [group, state, from]) cell.title = cell.textContent;
  line.setAttribute('aria-rowindex', n + 2);
  line.style.top = `${n * height}px`;
}

// paint shows the rows at the present position.
function paint() {
  const height = parseFloat(getComputedStyle(document.documentElement).fontSize) * (narrow.matches ? 8.25 : 2.25);
  body.style.height = `${list.length * height}px`;
  const from = Math.max(0, Math.floor(view.scrollTop / height) - 5);
  const to = Math.min(list.length, Math.ceil((view.scrollTop + view.clientHeight) / height) + 5);
  const known = new Map([...body.children].map((line) => [line.querySelector('button').dataset.id, line]));
  const focused = body.contains(document.activeElement);
  arrange(body, list.slice(from, to).map((instance, n) => {
    const line = known.get(instance.id) || make(instance.id);
    fill(line, instance, from + n, height);
    return line;
  }));
  byId('instance-table').setAttribute('aria-rowcount', list.length + 1);
  if (focused && !body.contains(document.activeElement)) view.focus({ preventScroll: true }); // its row is gone
}

function details(id) {
  const instance = list.find((each) => each.id === id);
  if (!instance) return; // it went meanwhile
  byId('details-title').textContent = instance.id;
  const empty = (value) => value === '' || value === null || value === undefined || Array.isArray(value) && value.length === 0;
  const rows = Object.entries(instance).filter(([name, value]) => name !== 'generation' && !empty(value));
  byId('details').replaceChildren(...rows.flatMap(([name, value]) =>
    [el('dt', {}, name.replaceAll('_', ' ')), el('dd', {}, typeof value === 'object' ? JSON.stringify(value) : String(value))]));
  byId('details-dialog').showModal();
}

// begin connects the filters and the scrolling.
export function begin(from) {
  store = from;
  byId('phase').append(...phases.map((word) => el('option', { value: word }, word)));
  for (const id of ['find', 'phase', 'order']) byId(id).addEventListener('input', draw);
  view.addEventListener('scroll', () => requestAnimationFrame(paint), { passive: true });
  addEventListener('resize', () => requestAnimationFrame(paint), { passive: true });
  byId('details-close').onclick = () => byId('details-dialog').close();
}

// draw shows the instances.
export function draw() {
  select();
  paint();
}
