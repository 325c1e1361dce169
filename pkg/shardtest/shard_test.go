package shardtest_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/shardtest"
)

// shmDir returns an in-memory directory if there is one: agents sync their files, and a disk
// would slow down the simulation.
func shmDir(t testing.TB) string {
	t.Helper()
	base := "/dev/shm"
	if info, err := os.Stat(base); err != nil || !info.IsDir() {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "shardtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestShardComesUp(t *testing.T) {
	dir := shmDir(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := shardtest.New(shardtest.Options{Servers: 2, Calm: true, Dir: dir, Settings: shardtest.DefaultSettings()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		began := time.Now()
		script, err := shardtest.ParseScript("start a\nstart b\nsettle 5m")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Play(script); err != nil {
			t.Error(err)
		}
		t.Logf("settled in %s\n%s", time.Since(began), s.Timeline)
		for _, v := range s.Violations() {
			t.Error(v)
		}
	})
}
