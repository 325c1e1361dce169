// Requests to the API, and the token they are made with.

const storage = 'nstance-token';

export const token = () => sessionStorage.getItem(storage) || '';

export const keepToken = (value) => sessionStorage.setItem(storage, value);

// Refused is an answer other than success, with the API's sentence.
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// call makes a request. It throws a Refused for an answer without success, and a TypeError if there
// is none.
export async function call(path, { method = 'GET', headers = {}, body, signal } = {}) {
  const all = { ...headers };
  if (token()) all.Authorization = `Bearer ${token()}`;
  if (body !== undefined) all['Content-Type'] = 'application/json';
  const json = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method, headers: all, body: json, signal, cache: 'no-store' });
  if (!answer.ok) throw new Refused(answer.status, await detail(answer));
  return answer;
}

async function detail(answer) {
  try {
    return (await answer.json()).detail || answer.statusText;
  } catch {
    return `status ${answer.status}`;
  }
}
