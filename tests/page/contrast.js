// Every visible text with its contrast against what is painted behind it, the least first: the first opaque ancestor, and
// for the texts of the picture the card, whose colour their halo has, or the tone's soft colour where they stand on it.
() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = colour => { const [r, g, b] = rgba(colour).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = node => { for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (rgba(colour)[3] === 255) return colour;
  } return '#fff'; };
  const soft = node => getComputedStyle(node).getPropertyValue('--soft');
  const all = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility() || node.closest('title, script, style')) continue;
    const style = getComputedStyle(node), inSvg = node.closest('svg');
    const onTone = inSvg && node.matches('.plain, .tone') && soft(node);
    const backs = onTone ? [behind(inSvg), soft(node)] : [behind(inSvg || node)];
    for (const back of backs) {
      const [a, b] = [light(inSvg ? style.fill : style.color), light(back)].sort((x, y) => y - x);
      all.push([(a + .05) / (b + .05), text.data]);
    }
  }
  return all.sort((x, y) => x[0] - y[0]);
}
