// Pausing the rollout of a group, and resuming it: the page asks first. What manages a group does not change
// that, so it needs no force.

import { byId, setText } from './dom.js';
import { call } from './api.js';

let group;

const dialog = byId('pause-dialog');

// open asks whether the rollout of a group is to be paused; of a paused one, whether it is to go on.
export function open(of) {
  group = of;
  const outdated = group.actual_size - group.up_to_date_size;
  setText(byId('pause-title'), `${group.rollout_paused ? 'Resume' : 'Pause'} the rollout of ${group.key} of shard ${group.shard}`);
  setText(byId('pause-question'), (group.rollout_paused
    ? `Instances that were made from an earlier definition are replaced again: ${outdated} now.`
    : `Instances that work are kept although they were made from an earlier definition: ${outdated} now. Those that fail are replaced.`));
  byId('pause-go').disabled = false;
  setText(byId('pause-go'), group.rollout_paused ? 'Resume' : 'Pause');
  dialog.showModal();
}

async function send(of) {
  const query = new URLSearchParams({ shard: of.shard });
  const headers = of.etag ? { 'If-Match': `"${of.etag}"` } : {}; // as it is shown, and not if it was changed meanwhile
  const body = { rollout_paused: !of.rollout_paused };
  await call(`/groups/${encodeURIComponent(of.key)}?${query}`, { method: 'PUT', headers, body });
}

async function submit(event) {
  event.preventDefault();
  const of = group;
  byId('pause-go').disabled = true;
  try {
    await send(of);
    if (of === group) dialog.close();
  } catch (error) {
    if (of !== group) return; // another one was opened
    setText(byId('pause-question'), `Nothing is known to have changed: ${error.message}. Close this to see the group as it is now.`);
  }
}

dialog.querySelector('form').addEventListener('submit', submit);
byId('pause-cancel').onclick = () => dialog.close();
