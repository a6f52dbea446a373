// One conversation: its ids in the viewer, the links of its turns and calls that lead to them, and answers that come while
// it is looked at.
import { make } from "./elements.js";
import { say } from "./news.js";
import { Viewer } from "./viewer.js";

const place = document.getElementById("viewer");
const viewer = new Viewer(place);

document.addEventListener("click", (event) => {
  const link = event.target.closest(".to-id");
  if (!link || !viewer.rows) return;
  event.preventDefault();
  viewer.go(Number(link.dataset.id));
});

async function goOn(answer) {
  if (answer === viewer.store.answer) return;
  const [before, transcript] = await viewer.goOn(answer);
  const [first, last] = [Math.min(before.turns.length + 1, transcript.turns.length), transcript.turns.length];
  say("The conversation has continued.", [`#turn-${first}`, first === last ? `Turn ${first}` : `Turns ${first} to ${last}`]);
}

let done = viewer.open().catch((error) => place.append(make("p", "problem", error.message)));

// The page was taken anew (live.js): where it shows another answer now, the viewer shows it too, one after the other.
document.addEventListener("renewed", ({ target }) => {
  if (target.id === "shown") done = done.then(() => goOn(target.dataset.answer)).catch((error) => say(error.message));
});
