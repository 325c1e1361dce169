// Small helpers for elements and texts. Text is only ever set as text, never as markup.

export const byId = (id) => document.getElementById(id);

// el makes an element: properties of the object are attributes, children are elements or texts.
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== ''));
  return made;
}

// setText changes a text only if it differs, so that screen readers repeat nothing.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// arrange gives an element these children, and moves only those that are elsewhere: a child that stays
// keeps the focus, a selection, and a click that is under way.
export function arrange(parent, children) {
  const stay = new Set(children);
  for (const child of [...parent.children]) if (!stay.has(child)) child.remove();
  let place = parent.firstElementChild;
  for (const child of children) {
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
}

// duration formats a time span in milliseconds by its largest units.
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h ${Math.floor(seconds / 60) % 60}m`;
  return `${Math.floor(seconds / 86400)}d ${Math.floor(seconds / 3600) % 24}h`;
}

export const since = (time) => (time ? duration(Date.now() - Date.parse(time)) : '');

export const clock = (time) => new Date(time).toLocaleTimeString();

export const count = (n, word) => `${n.toLocaleString()} ${word}${n === 1 ? '' : 's'}`;

// phase is the word of a protocol's phase.
export const phase = (value) => (value || '').replace('INSTANCE_PHASE_', '').toLowerCase();

// actor is the short form of who caused an event: the role and id of a caller, or the rule.
export function actor(value) {
  return value.startsWith('spiffe://') ? value.split('/').slice(-2).join(' ') : value;
}
