package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/nstance/nstance/pkg/admin/httpapi"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const webRow = `tr[data-group="one/web"]`

// TestLive: the page shows what there is, and each change as it happens; a restart of the API and a
// shard that is gone are said, and over when they are.
func TestLive(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 2)
	s.scale("two", "web", 1)
	v := serve(t, s, httpapi.Access{})
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has(webRow+" .actual", "2")
	b.has(webRow, "ready")
	b.has("#connection", "Live")
	b.has("#version", "v0-test")
	b.has("#instance-count", "3 instances")
	b.has(`#shard-list [data-shard="one"]`, "followed")
	b.has(`#shard-list [data-shard="one"]`, "Leaderserver-of-one, for 1h 0m")
	b.has(`#shard-list [data-shard="one"]`, "Epoch7")
	b.has(`#shard-list [data-shard="one"]`, "Leaserenewed 3s ago, ends in 27s")
	b.has(`#shard-list [data-shard="one"]`, "Standbys1")
	b.has("#event-list", "size 0 -> 2")
	b.has("#event-list", "by operator opr1, reason upsert-group")

	b.has("#instance-rows .row:first-child", "up to date2d 1h left")
	b.has("#instance-rows .row:nth-child(2)", "behind2d 1h left")

	s.scale("one", "web", 5)
	b.has(webRow+" .actual", "5")
	b.has("#instance-count", "6 instances")
	b.has("#event-list li:first-child", "size 2 -> 5")
	if label := eval[string](b, fmt.Sprintf("document.querySelector(`%s .spark`).getAttribute('aria-label')", webRow)); label == "" {
		t.Error("the history of the group has no words")
	}
	s.rollout("one", "web", 3)
	b.has(webRow, "3 of 5 up to date")
	b.has(webRow, "2 instances are to be replaced, and the next one waits for another to be ready")

	v.stop()
	b.has("#connection", "Not connected")
	b.has(webRow+" .actual", "5") // what was known stays
	s.scale("one", "web", 4)
	v.start()
	b.has("#connection", "Live")
	b.has(webRow+" .actual", "4")
	b.has("#instance-count", "5 instances") // the one that went meanwhile is not shown

	s.lose("two", true)
	b.has("#alerts", "Shard two can't be reached: no leader answers at 10.0.0.9:8443")
	b.has(`#shard-list [data-shard="two"]`, "not reachable")
	text := b.text(`#shard-list [data-shard="two"]`)
	if !strings.Contains(text, "Last leaderserver-of-two") || strings.Contains(text, "Lease") {
		t.Errorf("of a shard that can't be reached: %s", text)
	}
	b.run(chromedp.Reload())
	b.has(`#shard-list [data-shard="one"]`, "Leaderserver-of-one") // of the shards that answer
	b.has("#alerts", "Shard two can't be reached")
	s.lose("two", false)
	b.until("the alert is over", "document.getElementById('alerts').children.length === 0")
}

// TestScale: the page asks before it changes anything, once more if all instances would go, and not
// at all with a token that may only read.
func TestScale(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 2)
	v := serve(t, s, access(t))
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has("#token-why", "requires a token")
	token := func(text string) {
		b.until("the token is asked for", "document.activeElement.id === 'token'")
		b.run(chromedp.SendKeys(chromedp.CSS("#token"), text+kb.Enter))
	}
	token("a token that is not valid")
	b.has("#token-why", "refuses the token")
	token(fullToken)
	b.has(webRow+" .actual", "2")

	scale := func(size string) {
		b.click(webRow + " .scale")
		b.run(chromedp.SendKeys(chromedp.CSS("#scale-size"), size)) // the old size is selected
		b.click("#scale-go")
	}
	scale("4")
	b.has("#scale-question", "Change web of shard one from 2 to 4?")
	if size := s.size("one", "web"); size != 2 {
		t.Fatalf("size %d before the answer", size)
	}
	b.click("#scale-go")
	b.has(webRow+" .actual", "4")
	b.until("the dialog is closed", "!document.getElementById('scale-dialog').open")

	scale("0")
	b.has("#scale-question", "4 of its instances will be removed.")
	b.click("#scale-go")
	b.has("#scale-question", "this removes machines")
	if size := s.size("one", "web"); size != 4 {
		t.Fatalf("size %d before the answer", size)
	}
	b.click("#scale-go")
	b.has(webRow+" .actual", "0")

	s.manage("one", "web", "NstanceShardGroup nstance/web--one")
	b.has(webRow+" th", "managed by NstanceShardGroup nstance/web--one")
	scale("3")
	b.has("#scale-question", "It is managed by NstanceShardGroup nstance/web--one, which may change it back.")
	b.click("#scale-go")
	b.has(webRow+" .actual", "3")

	b.run(chromedp.Evaluate[chromedp.Void]("sessionStorage.clear()"), chromedp.Reload())
	b.has("#token-why", "requires a token")
	token(readToken)
	b.has(webRow+" .actual", "3")
	b.until("no changes", fmt.Sprintf(
		"[...document.querySelectorAll(`%s button`)].every((each) => each.getClientRects().length === 0)", webRow))
}

// TestPause: a rollout is paused and resumed, each time after a question, and not if the group was changed
// meanwhile.
func TestPause(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 4)
	s.rollout("one", "web", 1)
	s.manage("one", "web", "NstanceShardGroup nstance/web--one")
	v := serve(t, s, httpapi.Access{})
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has(webRow+" .pause", "Pause…")
	b.click(webRow + " .pause")
	b.has("#pause-title", "Pause the rollout of web of shard one")
	b.has("#pause-question", "although they were made from an earlier definition: 3 now.")
	if s.paused("one", "web") {
		t.Fatal("paused before the answer")
	}
	s.scale("one", "web", 5) // changes the etag
	b.has(webRow+" .actual", "5")
	b.click("#pause-go")
	b.has("#pause-question", "Nothing is known to have changed: ")
	b.until("it can't be repeated", "document.getElementById('pause-go').disabled")
	b.click("#pause-cancel")
	b.click(webRow + " .pause")
	b.click("#pause-go")
	b.has(webRow+" .pause", "Resume…")
	b.has(webRow, "paused")
	b.has(webRow+" th", "managed by NstanceShardGroup nstance/web--one") // still
	b.until("the dialog is closed", "!document.getElementById('pause-dialog').open")
	for _, problem := range b.problems(labels) {
		if problem != "" {
			t.Error(problem)
		}
	}
	b.click(webRow + " .pause")
	b.has("#pause-title", "Resume the rollout of web of shard one")
	b.click("#pause-go")
	b.has(webRow+" .pause", "Pause…")
	if s.paused("one", "web") {
		t.Error("still paused")
	}
}

// TestSeenSoon: an event is in the page a moment after it happened, also among many instances that change.
// The figure is in docs/benchmarks.md.
func TestSeenSoon(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 1000)
	v := serve(t, s, httpapi.Access{})
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has("#instance-count", "1,000 instances")
	b.run(chromedp.Evaluate[chromedp.Void](`
	  window.took = [];
	  new MutationObserver(() => {
	    const item = document.querySelector('#event-list li:first-child');
	    if (item.dataset.event === window.newest || !item.textContent.includes('seen soon')) return;
	    window.newest = item.dataset.event;
	    window.took.push(Date.now() - Date.parse(item.querySelector('time').dateTime));
	  }).observe(document.getElementById('event-list'), { childList: true })`))
	const events = 100
	for n := range events {
		s.mu.Lock()
		s.happened("one", &nstancev1.Event{Kind: "change", Group: "web", Message: "seen soon", Actor: "rule:test"})
		s.mu.Unlock()
		if n%2 == 0 {
			s.touchOne(n) // an instance changes too
		}
		b.until("the event is seen", fmt.Sprintf("window.took.length === %d", n+1))
	}
	took := eval[[]float64](b, "window.took.sort((a, b) => a - b)")
	t.Logf("until an event is in the page: median %.0f ms, p99 %.0f ms", took[events/2], took[events-2])
}

// TestLooks: names for screen readers, contrast in both colours, no overflow at 360 pixels, and the
// keyboard.
func TestLooks(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 30)
	s.scale("two", "a-group-with-a-rather-long-name-that-has-to-fit", 2)
	s.rollout("one", "web", 10)
	v := serve(t, s, httpapi.Access{})
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has("#instance-count", "32 instances")
	s.lose("two", true)
	b.has("#alerts", "Shard two")
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 768, 1024, 1190, 1280} {
			b.size(width, 900, scheme)
			for name, check := range map[string]string{"labels": labels, "contrast": contrast, "overflow": overflow} {
				for _, problem := range b.problems(check) {
					if problem != "" {
						t.Errorf("%s, %d wide, %s: %s", scheme, width, name, problem)
					}
				}
			}
			b.picture(fmt.Sprintf("%s-%d.png", scheme, width))
		}
	}
	b.run(chromedp.Focus(chromedp.CSS("#instance-view")), chromedp.KeyEvent(kb.Tab))
	b.until("the keyboard reaches an instance", "document.activeElement.dataset.id !== undefined")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.has("#details", "t3.small")
	for _, problem := range b.problems(labels) {
		if problem != "" {
			t.Errorf("details: %s", problem)
		}
	}
	// A row stays the same element when its instance changes, so that no click is lost.
	b.run(chromedp.KeyEvent(kb.Escape), chromedp.Evaluate[chromedp.Void]("window.before = document.activeElement"))
	s.touch()
	b.has("#instance-rows .row:first-child", "not now")
	b.until("the row is the same", "document.activeElement === window.before && before.isConnected")
	b.until("the details are closed", "!document.getElementById('details-dialog').open")
	b.until("the focus is back", "document.activeElement.dataset.id !== undefined")
}

// TestManyInstances: thousands of instances are listed with few elements, found, and scrolled to.
func TestManyInstances(t *testing.T) {
	s := newShards()
	s.scale("one", "web", 4000)
	s.scale("two", "batch", 1000)
	v := serve(t, s, httpapi.Access{})
	b := open(t)
	b.run(chromedp.Navigate(v.url()))
	b.has("#instance-count", "5,000 instances")
	if n := eval[int](b, "document.querySelectorAll('#instance-rows .row').length"); n == 0 || n > 60 {
		t.Errorf("%d rows, want those that can be seen", n)
	}
	b.run(chromedp.Evaluate[chromedp.Void]("document.getElementById('instance-view').scrollTop = 1e9"))
	b.until("the last row", "document.querySelector('#instance-rows .row:last-child').getAttribute('aria-rowindex') === '5001'")
	b.run(chromedp.SendKeys(chromedp.CSS("#find"), "batch"))
	b.has("#instance-count", "1,000 of 5,000 instances")
	// A change of one instance costs less than a blink: 20 draws with all instances changed.
	took := eval[float64](b, `(() => {
	  const begun = performance.now();
	  for (let n = 0; n < 20; n++) document.getElementById('find').dispatchEvent(new Event('input'));
	  return (performance.now() - begun) / 20;
	})()`)
	t.Logf("a draw takes %.1f ms", took)
	if took > 1000 {
		t.Errorf("a draw takes %.0f ms", took)
	}
	s.scale("two", "batch", 1001)
	b.has("#instance-count", "1,001 of 5,001 instances")
}

const (
	fullToken = "the-token-that-may-change-things"
	readToken = "the-token-that-may-only-read-them"
)

func access(t *testing.T) (a httpapi.Access) {
	t.Helper()
	open := func(name, token string) *httpapi.Tokens {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens, err := httpapi.OpenTokens(path)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	return httpapi.Access{Full: open("full", fullToken), ReadOnly: open("read", readToken)}
}

// picture writes a picture of the whole page to the folder DASHBOARD_PICTURES, if it is set.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("DASHBOARD_PICTURES")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}
