// Package dashboard tests the dashboard in a browser. It is a module of its own, since the product
// does not depend on a browser's protocol.
package dashboard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// actionTimeout is how long one action in the browser, and the effect of one, may take.
const actionTimeout = time.Minute

// browser is a tab of a browser.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

// find returns the browser of this machine, or "".
func find() string {
	if named := os.Getenv("CHROMIUM"); named != "" {
		return named
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// open opens a tab. Tests without a browser are skipped.
func open(t *testing.T) *browser {
	t.Helper()
	path := find()
	if path == "" {
		fmt.Fprintln(os.Stderr, "SKIPPED: the dashboard is not tried: there is no chromium (Debian: apt-get install chromium; or set CHROMIUM)")
		t.Skip("there is no chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	timed, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	allocated, cancel := chromedp.NewExecAllocator(timed, options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // the browser starts, for as long as this context
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.errors {
			t.Errorf("the browser's console: %s", text)
		}
	})
	return b
}

// listen collects errors of the page, except that the API could not be reached.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.errors = append(b.errors, fmt.Sprintf("%s: %s", e.Type, e.Args[0].Value))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork {
			b.errors = append(b.errors, e.Entry.Text)
		}
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// size sets the size of the window, and which colours it prefers.
func (b *browser) size(width, height int64, scheme string) {
	b.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	b.run(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		return err
	}))
}

// eval returns the value of an expression of the page.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// text returns the text of an element, or "".
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.textContent || ''", selector))
}

// until waits until an expression of the page is true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(actionTimeout); !eval[bool](b, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s: not in time; the page has %.3000s", what, b.text("body"))
		}
	}
}

// click waits until an element can be seen, and clicks it. Its place may change meanwhile.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.until(selector+" is visible", fmt.Sprintf("document.querySelector(%q)?.getClientRects().length > 0", selector))
	b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector)))
}

// has waits until an element has a text.
func (b *browser) has(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s with %q", selector, text),
		fmt.Sprintf("(document.querySelector(%q)?.textContent || '').includes(%q)", selector, text))
}

// problems returns what a check of the page has found.
func (b *browser) problems(check string) []string {
	b.t.Helper()
	return strings.Split(strings.TrimSpace(eval[string](b, "("+check+")().join('\\n')")), "\n")
}
