// What the shards decided and which changes they accepted, newest first.

import { arrange, byId, el, setText, actor } from './dom.js';

const shown = 200;
const items = new WeakMap(); // by event

function changes(event) {
  const all = (event.changes || []).map((change) => `${change.name}: ${change.from || '—'} → ${change.to || '—'}`);
  return all.length ? el('span', { class: 'note dim' }, all.join(', ')) : '';
}

function item({ shard, event }) {
  if (!items.has(event)) items.set(event, make(shard, event));
  return items.get(event);
}

function make(shard, event) {
  return el('li', { 'data-event': `${shard}/${event.id}` },
    el('time', { datetime: event.at, class: 'dim' }, new Date(event.at).toLocaleString()), ' ',
    el('span', { class: 'tag' }, event.kind), ' ',
    [shard, event.group, event.instance_id].filter(Boolean).join(' / '),
    el('span', { class: 'note' }, event.message),
    changes(event),
    el('span', { class: 'note dim' }, `by ${actor(event.actor)}${event.reason ? `, reason ${event.reason}` : ''}`));
}

// draw shows the newest events that have all words of the filter.
export function draw(store) {
  const words = byId('find-event').value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...store.happened].flatMap(([shard, events]) => events.map((event) => ({ shard, event }))).reverse();
  const found = all.filter(({ shard, event }) => {
    const text = [shard, event.group, event.instance_id, event.kind, event.reason, event.message, event.actor].join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  }).sort((a, b) => Date.parse(b.event.at) - Date.parse(a.event.at)).slice(0, shown);
  setText(byId('event-count'), `the newest ${found.length}`);
  arrange(byId('event-list'), found.map(item));
}
