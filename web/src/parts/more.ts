/** A table that is cut off at the right looks complete: its edge fades while there is more to scroll to. */
export function markMore(box: HTMLElement): void {
  box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
}
