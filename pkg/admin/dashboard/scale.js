// Scaling a group: the page asks twice, and a third time if all instances would go.

import { byId, setText } from './dom.js';
import { call } from './api.js';

let group;
let asked; // the size that the question is about
let stale = false; // the group was changed since it was opened
let emptying = false; // the API has asked whether all instances may go

const dialog = byId('scale-dialog');

function ask(text, go) {
  setText(byId('scale-question'), text);
  setText(byId('scale-go'), go);
}

function again() {
  asked = undefined;
  emptying = false;
  ask('', 'Continue');
}

// open asks for the size of a group.
export function open(of) {
  group = of;
  stale = false;
  byId('scale-go').disabled = false;
  again();
  byId('scale-title').textContent = `Scale ${group.key} of shard ${group.shard}`;
  byId('scale-now').textContent = `It has ${group.actual_size} of ${group.size} instances.`;
  byId('scale-size').value = group.size;
  dialog.showModal();
  byId('scale-size').select();
}

async function send() {
  const of = group;
  const query = new URLSearchParams({ shard: group.shard });
  if (emptying) query.set('yes', 'true');
  if (group.manager) query.set('force', 'true'); // the question named it
  try {
    // The size was chosen for the group as it is shown: not if it was changed meanwhile.
    const headers = group.etag ? { 'If-Match': `"${group.etag}"` } : {};
    await call(`/group/scale?${query}`, { method: 'POST', headers, body: { group: group.key, size: asked } });
    if (of === group) dialog.close();
  } catch (error) {
    if (of !== group) return; // another one was opened
    if (error.status === 412) { // it stays changed
      ask(`Nothing was changed: ${error.message}. Close this to see the group as it is now.`, 'Continue');
      stale = true;
      return;
    }
    if (error.status === 409 && asked === 0 && !emptying) {
      emptying = true;
      ask(`${error.message}`, 'Remove all instances');
      return;
    }
    again();
    ask(`Nothing is known to have changed: ${error.message}`, 'Continue');
  }
}

async function submit(event) {
  event.preventDefault();
  const size = Number(byId('scale-size').value);
  if (asked !== size) {
    asked = size;
    emptying = false;
    const less = group.size - size;
    const goes = less > 0 ? ` ${less} of its instances will be removed.` : '';
    const back = group.manager ? ` It is managed by ${group.manager}, which may change it back.` : '';
    ask(`Change ${group.key} of shard ${group.shard} from ${group.size} to ${size}?${goes}${back}`, `Set the size to ${size}`);
    return;
  }
  const go = byId('scale-go');
  const of = group;
  go.disabled = true;
  await send();
  if (of === group) go.disabled = stale;
}

dialog.querySelector('form').addEventListener('submit', submit);
byId('scale-size').addEventListener('input', again);
byId('scale-cancel').onclick = () => dialog.close();
