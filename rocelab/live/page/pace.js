// Drawing in the browser's frames, but no more than a share of its time: what takes long to draw is
// drawn less often, so that the page answers however much happens.

const REST = 3; // times as long as the last drawing took

// A function that asks for `draw`, which is then called once, however often it is asked for.
export function paced(draw) {
  let isAsked = false;
  let free = 0;
  const frame = () => {
    const began = performance.now();
    isAsked = false;
    draw();
    const ended = performance.now();
    free = ended + REST * (ended - began);
  };
  return () => {
    if (isAsked) return;
    isAsked = true;
    const rest = free - performance.now();
    if (rest > 0) setTimeout(() => requestAnimationFrame(frame), rest);
    else requestAnimationFrame(frame);
  };
}
