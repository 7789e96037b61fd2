// Pictures: bars, lines of the last minutes, and a table's rows × columns, coloured by device.

import { el } from './dom.js';
import { bytes, count, plural } from './format.js';

// A colour for each node, and a shade of it for each of its devices; dark text is readable on all.
export function colourOf(nodes, nodeId, device) {
  const position = Math.max(0, nodes.findIndex((node) => node.id === nodeId));
  const hue = (250 + position * 137.508) % 360;
  const lightness = [0.78, 0.7, 0.86, 0.66][device % 4];
  return `oklch(${lightness} 0.105 ${hue.toFixed(1)})`;
}

// `parts`: [{share, class}] of a whole, 0 to 1.
export function bar(parts, label) {
  let x = 0;
  const rects = parts.map(({ share, kind }) => {
    const width = 100 * Math.min(1, Math.max(0, share));
    const rect = el('rect', { class: kind, x, y: 0, width, height: 8 });
    x += width;
    return rect;
  });
  return el('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    el('rect', { class: 'rest', width: 100, height: 8 }), rects);
}

// `values`: the last ones; null: not known.
export function sparkline(values, label) {
  const known = values.filter((value) => value !== null);
  const max = Math.max(1e-9, ...known);
  let path = '';
  values.forEach((value, i) => {
    if (value === null) return;
    const x = (100 * i) / Math.max(1, values.length - 1);
    const y = 22 - (20 * value) / max;
    path += `${path === '' ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return el('svg', { class: 'spark', viewBox: '0 0 100 24', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    known.length > 1 && el('path', { d: path }));
}

const nameOf = (nodes, id) => nodes.find((node) => node.id === id)?.name ?? `node ${id}`;
export const placeName = (nodes, node, device) => `${nameOf(nodes, node)} / ${device}`;

const WIDTH = 1000;

// Columns run to the right, rows down. `moves` are drawn as frames over what moves.
export function tablePicture({ table, picture, nodes, moves = [], height = 460, links = false }) {
  const x = (column) => (WIDTH * column) / table.dim;
  const y = (row) => (height * row) / table.rows;
  const cells = picture.rectangles.map(([row, rows, column, columns, node, device]) => {
    const place = placeName(nodes, node, device);
    const [left, top] = [x(column), y(row)];
    const [width, tall] = [x(column + columns) - left, y(row + rows) - top];
    const gap = Math.min(2, width / 8, tall / 8);
    const rect = el('rect', {
      x: left + gap / 2, y: top + gap / 2, width: Math.max(0, width - gap), height: Math.max(0, tall - gap),
      rx: Math.min(4, width / 6, tall / 6), fill: colourOf(nodes, node, device),
    });
    if (!links) return rect;
    const units = Math.max(1, Math.round((rows * table.row_granules) / table.rows));
    const words = `${place}: rows ${count(row)} to ${count(row + rows - 1)}, ` +
      `columns ${column} to ${column + columns - 1}, ${plural(units, 'unit')}`;
    const label = width > 130 && tall > 22 &&
      el('text', { x: left + width / 2, y: top + tall / 2, class: 'place' }, place);
    return el('a', { svg: true, class: 'cell', href: `#/device/${node}/${device}`, 'aria-label': words },
      el('title', null, words), rect, label);
  });
  const frames = moves.map((move) => {
    const words = `${count(move.units)} units, ${bytes(move.bytes)}, move to ${placeName(nodes, move.to.node, move.to.device)}`;
    return el('rect', {
      class: 'move', x: x(move.column_begin) + 2, y: y(move.row_begin) + 1,
      width: Math.max(2, x(move.columns) - 4), height: Math.max(2, y(move.rows) - 2),
    }, el('title', null, words));
  });
  return el('svg', {
    class: links ? 'picture' : 'thumbnail', viewBox: `0 0 ${WIDTH} ${height}`,
    preserveAspectRatio: links ? null : 'none',
    'aria-label': links ? null : `Rows by columns of ${table.name}`, role: links ? null : 'img', 'data-arrows': links,
  }, cells, frames);
}
