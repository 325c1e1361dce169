package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDiskIsNotWritable: an agent that can't write its status file says so in its reports, until it
// can, and works.
func TestDiskIsNotWritable(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("10.0.0.1")
		p := f.start(f.config())
		last := func() (said string) {
			settle(3 * time.Minute) // a report has the error of the status before it
			s.set(func() { said = s.reports[len(s.reports)-1].GetWriteError() })
			return said
		}
		if said := last(); said != "" {
			t.Errorf("before: %q", said)
		}
		status := filepath.Join(f.dir, "status.json")
		if err := errors.Join(os.Remove(status), os.MkdirAll(filepath.Join(status, "x"), 0o700)); err != nil {
			t.Fatal(err) // nothing can be put in its place
		}
		if said := last(); said == "" {
			t.Error("it does not say that it can't write")
		}
		if err := os.RemoveAll(status); err != nil {
			t.Fatal(err)
		}
		if said := last(); said != "" {
			t.Errorf("afterwards: %q", said)
		}
		p.end()
	})
}
