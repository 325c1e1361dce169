// The shards: who leads them, and whether they can be watched.

import { byId, el, since, clock, duration } from './dom.js';

// state says in one word and one sentence how a shard is followed.
export function state(watched) {
  const parts = ['groups', 'instances'].map((of) => watched?.[of]);
  const lost = Object.values(watched || {}).find((part) => part?.lost);
  if (lost) return { word: 'not reachable', kind: 'bad', error: lost.error, at: lost.at };
  if (parts.every((part) => part)) return { word: 'followed', kind: 'good' };
  return { word: 'not known yet', kind: 'warn' };
}

function fact(name, value) {
  return value === undefined || value === '' ? [] : [el('dt', {}, name), el('dd', {}, value)];
}

// leadership says which server leads, and for how long it may, or which one led last.
function leadership(store, shard, lost) {
  const leads = store.leads.get(shard);
  const epoch = store.epoch(shard);
  if (!leads || epoch > Number(leads.epoch)) { // it was not asked yet
    const takeover = store.takeover(shard);
    return [...fact('Epoch', epoch?.toString()), ...fact('Takeover', takeover && `${since(takeover.at)} ago: ${takeover.message}`)];
  }
  if (lost) return [...fact('Last leader', leads.leader), ...fact('Epoch', leads.epoch)];
  const left = Date.parse(leads.lease_ends_at) - Date.now();
  const lease = `renewed ${since(leads.lease_renewed_at)} ago, ends in ${duration(left)}`;
  return [
    ...fact('Leader', `${leads.leader}, for ${since(leads.leading_since)}`), ...fact('Epoch', leads.epoch), ...fact('Lease', lease),
    ...fact('Standbys', String(leads.standbys)), ...fact('Version', leads.version),
  ];
}

function card(store, shard) {
  const is = state(store.watched.get(shard));
  const groups = [...store.groups.values()].filter((group) => group.shard === shard);
  const sum = (field) => groups.reduce((total, group) => total + group[field], 0);
  const problems = [...store.problems.values()].filter((problem) => problem.shard === shard);
  return el('li', { class: is.kind === 'bad' ? 'lost' : '', 'data-shard': shard },
    el('h3', {}, `${shard} `, el('span', { class: is.kind }, is.word)),
    is.error ? el('p', { class: 'bad note' }, `Since ${clock(is.at)}: ${is.error}. What is shown of it is from then.`) : '',
    el('dl', {},
      ...leadership(store, shard, is.kind === 'bad'),
      ...fact('Instances', groups.length ? `${sum('actual_size')} of ${sum('size')} in groups` : '')),
    ...problems.map((problem) => el('p', { class: 'warn note' }, `${problem.reason}: ${problem.message}`)));
}

// draw shows the shards, and an alert for each one that can't be reached.
export function draw(store, status) {
  byId('shard-list').replaceChildren(...status.shards.map((shard) => card(store, shard)));
  const gone = status.shards.filter((shard) => state(store.watched.get(shard)).kind === 'bad');
  const alerts = gone.map((shard) => {
    const is = state(store.watched.get(shard));
    return el('p', { 'data-shard': shard }, `Shard ${shard} can't be reached: ${is.error}`);
  });
  const text = (all) => [...all].map((alert) => alert.textContent).join('\n');
  if (text(alerts) !== text(byId('alerts').children)) byId('alerts').replaceChildren(...alerts); // a screen reader reads them
}
