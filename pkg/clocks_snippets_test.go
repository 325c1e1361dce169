package pkg_test

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// snippet is a test's code in a folder of its own, beside one of the repository's packages for
// tests, and a package that imports it.
func snippet(t *testing.T, code string) timed {
	t.Helper()
	all, set := timed{}, token.NewFileSet()
	for name, text := range map[string]string{
		"pkg/waits/waits.go": `
			func Eventually(t *testing.T, most time.Duration, is func() bool) {
				for began := time.Now(); !is(); {
					if time.Since(began) > most {
						t.Fatal("not in time")
					}
				}
			}
			func Simulated(t *testing.T, run func()) {
				synctest.Test(t, func(*testing.T) { run() })
			}`,
		"pkg/x/x_test.go": code,
	} {
		head := "package p\n"
		if !strings.HasPrefix(name, "pkg/waits") {
			head += `import "github.com/nstance/nstance/pkg/waits"` + "\n"
		}
		tree, err := parser.ParseFile(set, name, head+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all.add(set, name, tree, true)
	}
	return all
}

type snippetCase struct {
	code string
	want []string
}

// snippets are assertions of a time and code without any, by what they show.
func snippets() map[string]snippetCase {
	out := map[string]snippetCase{}
	for _, some := range []map[string]snippetCase{measuredSnippets(), waitingSnippets(), simulatedSnippets()} {
		for name, c := range some {
			out[name] = c
		}
	}
	return out
}

func measuredSnippets() map[string]snippetCase {
	return map[string]snippetCase{
		"a measured time": {`func TestX(t *testing.T) {
			began := time.Now()
			if time.Since(began) > 2*time.Second { t.Error("late") }
		}`, []string{"TestX: compares a measured time with 2s"}},
		"a variable, in seconds": {`func TestX(t *testing.T) {
			took := time.Since(began).Seconds()
			ok := 1.5 >= took
		}`, []string{"TestX: compares a measured time with 1.5s"}},
		"the longest of several": {`const most = 3 * time.Second
		func TestX(t *testing.T) {
			var took []time.Duration
			took = append(took, now().Sub(began))
			if slices.Max(took) > most { t.Error("late") }
		}`, []string{"TestX: compares a measured time with 3s"}},
		"another function's result": {`func lasts() (int, time.Duration) { return 0, time.Since(began) }
		func TestX(t *testing.T) {
			_, took := lasts()
			if took > time.Second { t.Error("late") }
		}`, []string{"TestX: compares a measured time with 1s"}},
		"one measured time and another": {`func TestX(t *testing.T) {
			first := time.Since(began)
			if time.Since(began) > 2*first { t.Error("slow") }
		}`, []string{"TestX: compares a measured time"}},
		"at least": {`func TestX(t *testing.T) {
			if took := time.Since(began); took < time.Second || took > 2*time.Minute { t.Error("early") }
		}`, nil},
		"what only hanging exceeds": {`func TestX(t *testing.T) {
			if time.Since(began) > time.Minute { t.Error("hangs") }
		}`, nil},
		"what is done after a time": {`func TestX(t *testing.T) {
			if time.Since(last) > time.Second { again() }
		}`, nil},
		"times that are made up": {`func TestX(t *testing.T) {
			if now.Sub(then) < life || now.Sub(then) == 0 { t.Error("wrong") }
		}`, nil},
	}
}

func waitingSnippets() map[string]snippetCase {
	return map[string]snippetCase{
		"a context": {`func TestX(t *testing.T) {
			short := 10 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), short)
		}`, []string{"TestX: context.WithTimeout 10s"}},
		"a channel": {`func TestX(t *testing.T) {
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Fatal("not done")
			}
		}`, []string{"TestX: time.After 5s"}},
		"a timer, and one kept": {`func TestX(t *testing.T) {
			late, later := time.NewTimer(time.Second), time.After(2*time.Second)
		}`, []string{"TestX: time.NewTimer 1s", "TestX: time.After 2s"}},
		"a deadline": {`func TestX(t *testing.T) {
			conn.SetReadDeadline(time.Now().Add(time.Second))
			deadline := time.Now().Add(10 * time.Second)
			for !ok() {
				if time.Now().After(deadline) { t.Fatal("late") }
			}
		}`, []string{"TestX: SetReadDeadline 1s", "TestX: a deadline of 10s"}},
		"a loop that fails when it is over": {`func TestX(t *testing.T) {
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				if ok() { return }
			}
			t.Fatal("late")
		}`, []string{"TestX: a deadline of 1s"}},
		"settings": {`func TestX(t *testing.T) {
			run(&http.Client{Timeout: time.Second}, harness{Patience: 2 * time.Second, Timeout: time.Second})
		}`, []string{"TestX: Timeout 1s", "TestX: Patience 2s"}},
		"another package's function": {`func TestX(t *testing.T) {
			waits.Eventually(t, 30*time.Second, done)
			waits.Eventually(t, 2*time.Minute, done)
		}`, []string{"TestX: Eventually 30s"}},
		"a function of its own, and one that calls it": {`func gets(t *testing.T, most time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), most)
		}
		func (w *world) settles(most time.Duration) { gets(w.t, most) }
		func TestX(t *testing.T) { w.settles(20 * time.Second) }`, []string{"TestX: settles 20s"}},
		"a function that is not known": {`func TestX(t *testing.T) {
			require.Eventually(t, is, 10*time.Second, look)
		}`, []string{"TestX: Eventually 10s"}},
		"pauses, and what does not come": {`func TestX(t *testing.T) {
			for !ok() {
				select {
				case <-over:
					t.Fatal("over")
				case <-time.After(time.Millisecond):
				}
			}
			time.Sleep(time.Second)
			<-time.After(time.Second)
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				if bad() { t.Fatal("bad") }
			}
		}`, nil},
	}
}

func simulatedSnippets() map[string]snippetCase {
	const asserts = `{ if time.Since(began) > time.Second { t.Error("late") } }`
	return map[string]snippetCase{
		"simulated time": {`func TestX(t *testing.T) {
			synctest.Test(t, func(t *testing.T) ` + asserts + `)
		}`, nil},
		"beside it": {`func TestX(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {})
			if time.Since(began) > time.Second { t.Error("late") }
		}`, []string{"TestX: compares a measured time with 1s"}},
		"a function that simulates": {`func simulated(t *testing.T, test func()) { waits.Simulated(t, func() { test() }) }
		func TestX(t *testing.T) { simulated(t, func() ` + asserts + `) }`, nil},
		"a function that is used there alone, and one that it uses": {`func checks() ` + asserts + `
		func all() { checks() }
		func TestX(t *testing.T) { waits.Simulated(t, func() { all() }) }`, nil},
		"a function that is used elsewhere too": {`func checks() ` + asserts + `
		func TestX(t *testing.T) { waits.Simulated(t, func() { checks() }) }
		func TestY(t *testing.T) { checks() }`, []string{"checks: compares a measured time with 1s"}},
		"a method of a type that is used there alone": {`type store struct{}
		func (s *store) Put() ` + asserts + `
		func TestX(t *testing.T) { waits.Simulated(t, func() { use(&store{}) }) }`, nil},
		"a method of a type that is used elsewhere": {`type store struct{}
		func (s *store) Put() ` + asserts + `
		func TestX(t *testing.T) { use(&store{}) }`, []string{"Put: compares a measured time with 1s"}},
		"a table of what is run there": {`func TestX(t *testing.T) {
			for _, run := range []func(){func() ` + asserts + `} {
				waits.Simulated(t, func() { run() })
			}
		}`, nil},
		"a name that others have": {`func checks() ` + asserts + `
		func TestX(t *testing.T) { waits.Simulated(t, func() { checks() }) }
		func TestY(t *testing.T) {
			checks := x.checks
			use(checks)
		}`, nil},
		"a benchmark": {`func BenchmarkX(b *testing.B) ` + asserts, nil},
	}
}
