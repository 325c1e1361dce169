package dashboard

// labels lists the controls, images and regions without a name for screen readers.
const labels = `() => {
  const named = (e) => (e.getAttribute('aria-label') || '').trim() || e.labels?.length && e.labels[0].textContent.trim() ||
    (e.getAttribute('aria-labelledby') || '').split(' ').some((id) => document.getElementById(id)?.textContent.trim()) ||
    ['A', 'BUTTON'].includes(e.tagName) && e.textContent.trim();
  const found = [...document.querySelectorAll('a, button, input, select, progress, [role=img], [role=region], [role=table], section, nav')]
    .filter((e) => e.closest('dialog:not([open])') === null && !named(e)).map((e) => 'no name: ' + e.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  return found.concat(ids.filter((id, n) => ids.indexOf(id) !== n).map((id) => 'twice: #' + id));
}`

// contrast lists texts whose contrast to what is behind them is below 4.5 to 1.
const contrast = `() => {
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || e.getClientRects().length === 0 || e.closest('script, noscript, option')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    seen++;
    if (ratio < 4.5) found.push(ratio.toFixed(2) + ' to 1: ' + e.outerHTML.slice(0, 120));
  }
  if (seen < 30) found.push('only ' + seen + ' texts were seen');
  return found;
}`

// overflow says whether the page is wider than the window, and some of what may be the reason.
const overflow = `() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > width + 1);
  return ['the page is ' + document.documentElement.scrollWidth + ' wide'].concat(wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)));
}`
