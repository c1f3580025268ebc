document.documentElement.dataset.lanterns = "ready";
