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
  setText(byId('pause-go'), group.rollout_paused ? 'Resume' : 'Pause');
  dialog.showModal();
}

async function send() {
  const query = new URLSearchParams({ shard: group.shard });
  try {
    const headers = group.etag ? { 'If-Match': `"${group.etag}"` } : {}; // as it is shown, and not if it was changed meanwhile
    const body = { rollout_paused: !group.rollout_paused };
    await call(`/groups/${encodeURIComponent(group.key)}?${query}`, { method: 'PUT', headers, body });
    dialog.close();
  } catch (error) {
    setText(byId('pause-question'), `Nothing is known to have changed: ${error.message}`);
  }
}

dialog.querySelector('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const go = byId('pause-go');
  go.disabled = true;
  await send();
  go.disabled = false;
});
byId('pause-cancel').onclick = () => dialog.close();
