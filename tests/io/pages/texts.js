(() => {
  const parse = code => {
    const numbers = code.match(/[\d.]+(e-?\d+)?/g).map(Number);
    const unit = code.startsWith('color(') ? 1 : 255;
    return [...numbers.slice(0, 3).map(one => one / unit), numbers.length > 3 ? numbers[3] : 1];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = colour => [.2126, .7152, .0722].reduce((sum, weight, i) => sum + weight *
    (colour[i] <= .04045 ? colour[i] / 12.92 : ((colour[i] + .055) / 1.055) ** 2.4), 0);
  const ground = element => {
    const layers = [];
    for (let one = element; one; one = one.parentElement)
      layers.push(parse(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [1, 1, 1, 1]);
  };
  const texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, range = document.createRange();
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    range.selectNodeContents(walker.currentNode);
    const style = getComputedStyle(element), box = range.getBoundingClientRect(), under = ground(element);
    const pair = [light(over(parse(style.color), under)), light(under)].sort((a, b) => b - a);
    texts.push({text: walker.currentNode.data.trim().slice(0, 60), size: parseFloat(style.fontSize),
      contrast: (pair[0] + .05) / (pair[1] + .05), left: box.left, right: box.right,
      scrolls: !!element.closest('.scroll')});
  }
  return texts;
})()
