// A reader of server-sent events. EventSource can't send a token, so this one reads the body of a
// request.

import { call } from './api.js';

const silence = 45000; // the API sends something at least every 15 s
const longest = 15000; // between two attempts

// parser returns a function that takes pieces of a stream, and calls see for each event.
export function parser(see) {
  let rest = '';
  let event = { id: '', kind: '', data: [] };
  const line = (text) => {
    if (text === '') {
      if (event.kind) see({ id: event.id, kind: event.kind, data: event.data.join('\n') });
      event = { id: '', kind: '', data: [] };
      return;
    }
    const colon = text.indexOf(':');
    if (colon === 0) return; // a comment
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? '' : text.slice(colon + 1).replace(/^ /, '');
    if (field === 'id') event.id = value;
    if (field === 'event') event.kind = value;
    if (field === 'data') event.data.push(value);
  };
  return (piece) => {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    lines.forEach((text) => line(text.replace(/\r$/, '')));
  };
}

// follow reads the stream until it is told to stop. It connects again by itself, behind the last
// event that it has seen.
//   see(event)        one event, with data as an object
//   connected()       the stream begins
//   broken(why, wait) it can't be read for now; it is tried again after so many milliseconds
// A broken that returns a promise is waited for as well, such as for a token.
export async function follow(path, { see, connected, broken }) {
  let last = '';
  for (let failures = 0; ; failures++) {
    let why;
    try {
      await read(path, last, () => {
        failures = 0;
        connected();
      }, (event) => {
        if (event.id) last = event.id;
        see({ kind: event.kind, data: JSON.parse(event.data) });
      });
      why = new Error('the API has closed the stream');
    } catch (error) {
      why = error;
    }
    const wait = Math.min(longest, 500 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2);
    await broken(why, wait);
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function read(path, last, connected, see) {
  const stop = new AbortController();
  let quiet;
  const heard = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => stop.abort(new Error('the API has gone silent')), silence);
  };
  heard();
  try {
    const answer = await call(path, { headers: last ? { 'Last-Event-ID': last } : {}, signal: stop.signal });
    connected();
    const take = parser(see);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      take(value);
    }
  } finally {
    clearTimeout(quiet);
    stop.abort();
  }
}
