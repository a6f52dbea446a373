// One conversation: its ids in the viewer, and the links of its turns and calls that lead to them.
import { make } from "./elements.js";
import { Viewer } from "./viewer.js";

const place = document.getElementById("viewer");
const viewer = new Viewer(place);

document.addEventListener("click", (event) => {
  const link = event.target.closest(".to-id");
  if (!link || !viewer.rows) return;
  event.preventDefault();
  viewer.go(Number(link.dataset.id));
});

viewer.open().catch((error) => place.append(make("p", "problem", error.message)));
