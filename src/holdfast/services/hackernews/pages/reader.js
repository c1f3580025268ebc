// Pages work without this; it makes them faster to use.
import { findSession } from "./memory.js";

findSession(document.documentElement.dataset.reader);
if (document.getElementById("stories")) (await import("./stories.js")).start();
if (document.getElementById("hidden-stories")) (await import("./hidden.js")).start();
