package shardtest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

var update = flag.Bool("update", false, "update the timelines of testdata")

// divider separates a script and its timeline.
const divider = "---\n"

func stories(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	return files
}

// TestStories plays each script of testdata and compares its timeline with the
// one recorded below it.
func TestStories(t *testing.T) {
	for _, file := range stories(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			story, want, _ := strings.Cut(string(text), divider)
			got := tell(t, story)
			if *update {
				if err := os.WriteFile(file, []byte(story+divider+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := difference(want, got); d != "" {
				t.Errorf("the timeline differs from the recorded one (-update records it); it is now\n%s\ndifference: %s", got, d)
			}
		})
	}
}

// tell plays a script in a calm shard of two servers with spot machines, and returns its
// timeline.
func tell(t *testing.T, story string) (timeline string) {
	t.Helper()
	play(t, story, shardtest.Options{Spot: true}, func(s *shardtest.Shard) { timeline = s.Timeline.String() })
	return timeline
}

// play plays a script in a calm shard of two servers, and calls played before closing it.
func play(t *testing.T, story string, options shardtest.Options, played func(*shardtest.Shard)) {
	t.Helper()
	script, err := shardtest.ParseScript(story)
	if err != nil {
		t.Fatal(err)
	}
	options.Servers, options.Calm, options.Dir, options.Settings = 2, true, shmDir(t), shardtest.DefaultSettings()
	synctest.Test(t, func(t *testing.T) {
		s, err := shardtest.New(options)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Play(script); err != nil {
			t.Error(err)
		}
		for _, v := range s.Violations() {
			t.Error(v)
		}
		played(s)
	})
}

// slack is the tolerance for the times of a line: the duration of a TLS handshake depends on
// how its bytes are batched.
const slack = 300 * time.Millisecond

// difference describes the first difference of two timelines; empty if there is none.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for n := range min(len(w), len(g)) {
		before, was, _ := strings.Cut(w[n], " ")
		after, is, _ := strings.Cut(g[n], " ")
		if was != is || (moment(after)-moment(before)).Abs() > slack {
			return w[n] + " is now " + g[n]
		}
	}
	if len(w) != len(g) {
		return fmt.Sprintf("%d lines are now %d", len(w), len(g))
	}
	return ""
}

// moment reads the time of a line.
func moment(text string) time.Duration {
	d, err := time.ParseDuration(strings.Replace(strings.Replace(text, ":", "h", 1), ":", "m", 1) + "s")
	if err != nil {
		return 0
	}
	return d
}

func TestScriptErrors(t *testing.T) {
	for script, want := range map[string]string{
		"jump a":                      `"jump" is not a command: want one of ack, agent,`,
		"start d":                     `"start d" is not one of "start SERVER"`,
		"wait 25h":                    `line 1`,
		"# fine\n\nwait":              `line 3`,
		strings.Repeat("ack\n", 2001): `2001 steps: want at most 2000`,
		strings.Repeat("#", 65<<10):   `want at most 65536`,
	} {
		if _, err := shardtest.ParseScript(script); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", script, err, want)
		}
	}
}

// FuzzParseScript: parsing and String are inverse.
func FuzzParseScript(f *testing.F) {
	for _, file := range stories(f) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		story, _, _ := strings.Cut(string(text), divider)
		f.Add(story)
	}
	f.Add("scale web 3 remove any7 # not now\ncrash leader before 12\nprovider delays 2 create 3s")
	f.Fuzz(func(t *testing.T, text string) {
		script, err := shardtest.ParseScript(text)
		if err != nil {
			return
		}
		again, err := shardtest.ParseScript(script.String())
		if err != nil || again.String() != script.String() {
			t.Errorf("%q is read as %q, and that as %q, %v", text, script, again, err)
		}
	})
}
