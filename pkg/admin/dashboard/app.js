// The page: it follows the stream, and draws what has changed.

import { byId, setText, clock, duration } from './dom.js';
import { call, keepToken, token } from './api.js';
import { follow } from './stream.js';
import { Store } from './store.js';
import * as shards from './shards.js';
import * as groups from './groups.js';
import * as instances from './instances.js';
import * as events from './events.js';
import * as scale from './scale.js';
import * as pause from './pause.js';

const store = new Store();
const status = { shards: [] };
const patience = 4000; // milliseconds: who leads a shard is asked every 5 s
let stale; // {why, at} while there is no stream
let refused; // why the API ended the stream

// askToken waits for a token.
function askToken(why) {
  const dialog = byId('token-dialog');
  setText(byId('token-why'), token() ? `The API refuses the token: ${why}.` : 'The API requires a token.');
  return new Promise((done) => {
    let given = false;
    dialog.onclose = () => given || dialog.showModal(); // there is nothing to see without one
    dialog.querySelector('form').onsubmit = (event) => {
      event.preventDefault();
      keepToken(byId('token').value.trim());
      byId('token').value = '';
      given = true;
      dialog.close();
      done();
    };
    if (!dialog.open) dialog.showModal();
  });
}

// learn asks the API which shards there are, and what the token may do.
async function learn() {
  const is = await (await call('/status')).json();
  status.shards = is.shards;
  setText(byId('version'), is.version);
  document.body.classList.toggle('read-only', !is.may_change);
  store.changed.add('shards');
  drawSoon();
}

// askLeaders asks which server leads each shard that can be followed. Each is asked alone, so that one that
// does not answer holds up no other.
function askLeaders() {
  for (const shard of status.shards) if (shards.state(store.watched.get(shard)).kind !== 'bad') askLeader(shard);
}

const asking = new Set(); // shards

async function askLeader(shard) {
  if (asking.has(shard)) return;
  asking.add(shard);
  try {
    const query = new URLSearchParams({ shard });
    const [is] = await (await call(`/shards?${query}`, { signal: AbortSignal.timeout(patience) })).json();
    store.lead(shard, is);
    drawSoon();
  } catch (error) {
    console.info(`the leader of ${shard} is not known: ${error.message}`);
  } finally {
    asking.delete(shard);
  }
}

function showConnection() {
  const line = byId('connection');
  line.classList.toggle('stale', Boolean(stale));
  document.body.dataset.connection = stale ? 'stale' : 'live';
  if (!stale) {
    setText(line, 'Live');
    return;
  }
  const age = stale.at ? `What is shown is from ${clock(stale.at)}. ` : '';
  setText(line, `Not connected: ${stale.why}. ${age}It is tried again.`);
}

async function broken(why, wait) {
  const first = !document.body.dataset.connection; // nothing is shown yet
  stale = { why: refused || why.message, at: stale || first ? stale?.at : Date.now() };
  refused = undefined;
  showConnection();
  if (why.status === 401) await askToken(why.message);
  else console.info(`not connected: ${why.message}; trying again in ${duration(wait)}`);
}

function connected() {
  stale = undefined;
  showConnection();
  learn().then(askLeaders).catch((error) => console.info(`the status of the API is not known: ${error.message}`));
}

function see(event) {
  if (event.kind === 'error') refused = event.data.detail; // the stream ends
  else store.see(event);
  if (event.kind === 'event' && event.data.event.kind === 'takeover') askLeader(event.data.shard);
  drawSoon();
}

let due; // of the next draw
let drawn = -Infinity; // when the last draw ended
let cost = 0; // milliseconds of it

// drawSoon draws what has changed: at once after a quiet time, and otherwise after a pause that grows with
// what a draw costs.
function drawSoon() {
  if (due || store.changed.size === 0) return;
  due = setTimeout(() => {
    const begun = performance.now();
    due = undefined;
    draw();
    drawn = performance.now();
    cost = drawn - begun;
  }, Math.max(0, drawn + Math.min(1000, Math.max(50, 4 * cost)) - performance.now()));
}

function draw() {
  const changed = store.changed;
  store.changed = new Set();
  if (changed.has('shards')) shards.draw(store, status);
  if (changed.has('groups')) groups.draw(store, { scale: scale.open, pause: pause.open });
  if (changed.has('instances')) instances.draw();
  if (changed.has('events')) events.draw(store);
}

document.body.classList.add('read-only'); // until the API says otherwise
instances.begin(store);
byId('find-event').addEventListener('input', () => events.draw(store));
setInterval(() => {
  store.sampleAll();
  drawSoon();
}, 10000);
setInterval(() => {
  if (!stale) askLeaders();
  store.changed.add('shards').add('instances'); // ages
  drawSoon();
}, 5000);
follow('/events', { see, connected, broken });
