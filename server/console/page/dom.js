// Elements from data. Text goes in as text nodes and attributes by name: nothing that the cluster
// says, such as a name or a message, is ever read as markup.

const SVG = new Set(['svg', 'g', 'rect', 'path', 'line', 'text', 'pattern', 'defs', 'title']);

// el('p', {class: 'muted'}, 'words', el('b', null, 3)); null children and attributes are left out.
export function el(tag, attributes, ...children) {
  const inSvg = SVG.has(tag) || attributes?.svg;
  const node = inSvg
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false || name === 'svg') continue;
    node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

// Makes `old` like `fresh`, and leaves alone what is alike: focus, scroll and selection stay.
export function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.tagName === 'INPUT' && old !== document.activeElement) old.value = fresh.value;
  patchChildren(old, [...fresh.childNodes]);
}

export function patchChildren(parent, children) {
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
  children.forEach((child, i) => {
    if (i < parent.childNodes.length) patch(parent.childNodes[i], child);
    else parent.append(child);
  });
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute('data-key') : null;
}

// The arrow keys go to the nearest link in their direction, among those of the same [data-arrows].
const DIRECTIONS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function moveFocus(event) {
  const direction = DIRECTIONS[event.key];
  const region = document.activeElement?.closest('[data-arrows]');
  if (!direction || !region || document.activeElement.tagName === 'INPUT') return false;
  const from = centre(document.activeElement);
  let best = null;
  for (const candidate of region.querySelectorAll('a[href]')) {
    if (candidate === document.activeElement) continue;
    const to = centre(candidate);
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const along = dx * direction[0] + dy * direction[1];
    const across = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
    if (along < 2) continue;
    const distance = along + 3 * across;
    if (best === null || distance < best.distance) best = { candidate, distance };
  }
  if (best === null) return false;
  best.candidate.focus();
  return true;
}

function centre(element) {
  const box = element.getBoundingClientRect();
  return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
}
