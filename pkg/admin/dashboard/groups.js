// The groups: how many instances they should have and have, and how far a rollout is.

import { arrange, byId, el, setText, count, duration } from './dom.js';

const rows = new Map();

function spark(history) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const [first, last] = [history[0], history[history.length - 1]];
  const top = Math.max(1, ...history.map((sample) => Math.max(sample.wanted, sample.actual)));
  const span = Math.max(1, last.at - first.at);
  svg.setAttribute('viewBox', '0 0 100 24');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `In the last ${duration(last.at - first.at)}: from ${first.actual} to ${last.actual} instances, ` +
    `wanted ${first.wanted} to ${last.wanted}, at most ${top}`);
  for (const field of ['wanted', 'actual']) {
    const points = [];
    history.forEach((sample, n) => {
      const x = (100 * (sample.at - first.at) / span).toFixed(1);
      if (n > 0) points.push(`${x},${(23 - 22 * history[n - 1][field] / top).toFixed(1)}`);
      points.push(`${x},${(23 - 22 * sample[field] / top).toFixed(1)}`);
    });
    if (history.length === 1 || span === 1) points.push(`100,${(23 - 22 * last[field] / top).toFixed(1)}`);
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
    line.setAttribute('class', field);
    line.setAttribute('vector-effect', 'non-scaling-stroke');
    line.setAttribute('points', points.join(' '));
    svg.append(line);
  }
  return svg;
}

// ready is the state of a group in words: its condition, and what holds it up.
function ready(group) {
  const condition = (group.conditions || []).find((each) => each.type === 'Ready');
  const failing = (group.conditions || []).find((each) => each.type === 'CreatesFailing' && each.status === 'True');
  const cell = el('td', {});
  const words = { True: ['ready', 'good'], False: ['not ready', 'warn'] }[condition?.status] || ['unknown', 'dim'];
  cell.append(el('span', { class: words[1] }, words[0]));
  if (condition?.status === 'False' && condition.message) cell.append(el('span', { class: 'note dim' }, condition.message));
  if (failing) cell.append(el('span', { class: 'note bad' }, failing.message));
  return cell;
}

// rollout is how many instances were made from the present definition of their group.
function rollout(group) {
  const outdated = group.actual_size - group.up_to_date_size;
  const moving = [[group.pending_size, 'pending'], [group.draining_size, 'draining']]
    .filter(([n]) => n > 0).map(([n, words]) => `${n} ${words}`).concat(group.rollout_paused ? ['paused'] : []).join(', ');
  const rotating = (group.conditions || []).find((each) => each.type === 'Rotating');
  const notes = el('span', { class: 'note dim' }, moving);
  const why = rotating && el('span', { class: 'note dim' }, rotating.message);
  if (outdated <= 0) return el('td', {}, group.actual_size > 0 ? 'up to date' : '', notes, why);
  const text = `${group.up_to_date_size} of ${group.actual_size} up to date`;
  const label = `Rollout of ${group.key}: ${text}`;
  return el('td', {}, el('progress', { max: group.actual_size, value: group.up_to_date_size, 'aria-label': label }),
    el('span', { class: 'note' }, text), notes, why);
}

function fill(row, group, { scale, pause }) {
  const of = `${group.key} of shard ${group.shard}`;
  const scaling = row.querySelector('.scale') || el('button', { type: 'button', class: 'scale', 'aria-label': `Scale ${of}` }, 'Scale…');
  const pausing = row.querySelector('.pause') || el('button', { type: 'button', class: 'pause' });
  scaling.onclick = () => scale(group);
  pausing.onclick = () => pause(group);
  setText(pausing, group.rollout_paused ? 'Resume…' : 'Pause…');
  pausing.setAttribute('aria-label', `${group.rollout_paused ? 'Resume' : 'Pause'} the rollout of ${of}`);
  const managed = group.manager ? [`managed by ${group.manager}`] : [];
  const made = [group.template, group.instance_type].filter(Boolean).concat(managed).join(', ');
  const cells = [
    el('th', { scope: 'row' }, group.key, el('span', { class: 'note dim' }, made)),
    el('td', {}, group.shard), el('td', { class: 'number wanted' }, String(group.size)),
    el('td', { class: 'number actual' }, String(group.actual_size)), ready(group), el('td', {}, spark(group.history)), rollout(group),
  ];
  const last = row.lastElementChild || el('td', { class: 'changes' }, scaling, ' ', pausing); // they may have the focus
  while (row.firstElementChild && row.firstElementChild !== last) row.firstElementChild.remove();
  if (!last.parentNode) row.append(last);
  last.before(...cells);
}

// draw shows the groups, sorted; changes are called with the group that is to be changed.
export function draw(store, changes) {
  const body = byId('group-rows');
  const sorted = [...store.groups].sort(([a], [b]) => (a < b ? -1 : 1));
  setText(byId('group-count'), count(sorted.length, 'group'));
  const drawn = sorted.map(([id, group]) => {
    if (!rows.has(id)) rows.set(id, el('tr', { 'data-group': id }));
    fill(rows.get(id), group, changes);
    return rows.get(id);
  });
  for (const id of rows.keys()) if (!store.groups.has(id)) rows.delete(id);
  arrange(body, drawn);
}
