package ledger_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// logged is a log for inspection.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// shard creates a store with n running instances and a cache of them.
func shard(t *testing.T, n int) (*objecttest.Counting, ledger.Config, *logged) {
	t.Helper()
	store := objecttest.NewCounting(mem.New(mem.Config{HashETags: true}))
	cfg := config(t, store)
	log := &logged{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	l := open(t, cfg)
	w := l.Lead(term{epoch: 1})
	for i := range n {
		create(t, w, i)
		update(t, w, i, fleet.Running)
	}
	closeLedger(t, l)
	return store, cfg, log
}

// groupsRead is the one read of every Load that is not of a record.
const groupsRead = 1

// reopen loads a new ledger, as after a restart, and returns the number of record reads.
func reopen(t *testing.T, store *objecttest.Counting, cfg ledger.Config) (reads int64, s ledger.Stats) {
	t.Helper()
	before := store.Counts()
	l := open(t, cfg)
	defer closeLedger(t, l)
	s = load(t, l)
	for _, i := range l.Instances() {
		if i.Phase != fleet.Running {
			t.Errorf("%s is %s, want running", i.ID, i.Phase)
		}
	}
	if len(l.Instances()) != s.Listed-len(s.Malformed) {
		t.Errorf("%d instances, %d listed", len(l.Instances()), s.Listed)
	}
	return store.Counts().Sub(before).Get - groupsRead, s
}

func TestWarmStartReadsNothing(t *testing.T) {
	store, cfg, log := shard(t, 20)
	if reads, s := reopen(t, store, cfg); reads != 0 || s.Cached != 20 || s.Read != 0 {
		t.Errorf("%d reads, %+v", reads, s)
	}
	if log.String() != "" {
		t.Error(log.String())
	}
}

func TestWarmStartReadsWhatDiffers(t *testing.T) {
	store, cfg, _ := shard(t, 20)
	elsewhere := cfg
	elsewhere.CachePath, elsewhere.Writer = "", "server-2"
	l := open(t, elsewhere)
	load(t, l)
	w := l.Lead(term{epoch: 2})
	change := func(i *fleet.Instance) error { i.Hostname = "x"; return nil }
	for n := range 3 {
		if _, err := w.Update(t.Context(), newID(n), change); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), key(9)); err != nil {
		t.Fatal(err)
	}
	create(t, w, 30)
	update(t, w, 30, fleet.Running)
	closeLedger(t, l)
	if reads, s := reopen(t, store, cfg); reads != 5 || s.Listed != 20 || s.Cached != 16 { // one was removed
		t.Errorf("%d reads, %+v", reads, s)
	}
	if reads, _ := reopen(t, store, cfg); reads != 0 {
		t.Errorf("%d reads at the second start", reads)
	}
}

func TestColdStarts(t *testing.T) {
	tests := []struct {
		name   string
		damage func(t *testing.T, path string)
		log    string // the expected text
	}{
		{"removed", func(t *testing.T, path string) { remove(t, path) }, ""},
		{"not a database", func(t *testing.T, path string) {
			overwrite(t, path, []byte(strings.Repeat("no database ", 500)))
		}, "cache file replaced"},
		{"truncated", func(t *testing.T, path string) { truncate(t, path, 5000) }, "cache file replaced"},
		{"other schema", func(t *testing.T, path string) { execute(t, path, "PRAGMA user_version = 99") }, "cache file replaced"},
		{"other columns", func(t *testing.T, path string) {
			execute(t, path, "DROP TABLE instances; CREATE TABLE instances (x)")
		}, "cache file replaced"},
		{"damaged rows", func(t *testing.T, path string) {
			execute(t, path, "UPDATE instances SET body = replace(CAST(body AS TEXT), 'running', 'deleted')")
		}, ""},
		{"a directory in its place", func(t *testing.T, path string) {
			remove(t, path)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "working without a cache file"},
		{"used by another process", func(t *testing.T, path string) {
			conn := connect(t, path)
			if err := conn.Exec("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}, "working without a cache file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store, cfg, log := shard(t, 20)
			tt.damage(t, cfg.CachePath)
			if reads, s := reopen(t, store, cfg); reads != 20 || s.Read != 20 {
				t.Errorf("%d reads, %+v", reads, s)
			}
			if tt.log == "" && log.String() != "" || !strings.Contains(log.String(), tt.log) {
				t.Errorf("log %q, want %q", log, tt.log)
			}
			if strings.Contains(tt.log, "replaced") {
				if reads, _ := reopen(t, store, cfg); reads != 0 {
					t.Errorf("%d reads from the replaced cache", reads)
				}
			}
		})
	}
}

// The cache's folder need not exist yet.
func TestCacheFolderIsMade(t *testing.T) {
	store, cfg, log := shard(t, 3)
	cfg.CachePath = filepath.Join(t.TempDir(), "not", "yet", "cache.db")
	if reads, _ := reopen(t, store, cfg); reads != 3 || log.String() != "" {
		t.Errorf("%d reads, log %q", reads, log)
	}
	if reads, _ := reopen(t, store, cfg); reads != 0 {
		t.Errorf("%d reads at the second start", reads)
	}
}

func TestUnwritablePlace(t *testing.T) {
	store, cfg, log := shard(t, 3)
	file := filepath.Join(t.TempDir(), "file")
	overwrite(t, file, nil)
	cfg.CachePath = filepath.Join(file, "cache.db")
	if reads, _ := reopen(t, store, cfg); reads != 3 || !strings.Contains(log.String(), "working without a cache file") {
		t.Errorf("%d reads, log %q", reads, log)
	}
}

// A killed process leaves a stale cache: here, a copy taken during its work.
func TestKilledBeforeTheCacheWasWritten(t *testing.T) {
	_, cfg, _ := shard(t, 10)
	stale, err := os.ReadFile(cfg.CachePath)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, cfg)
	load(t, l)
	w := l.Lead(term{epoch: 2})
	for n := range 4 {
		update(t, w, n, fleet.Draining)
	}
	create(t, w, 50)
	closeLedger(t, l)
	remove(t, cfg.CachePath)
	overwrite(t, cfg.CachePath, stale)

	l = open(t, cfg)
	defer closeLedger(t, l)
	if s := load(t, l); s.Read != 5 || s.Cached != 6 {
		t.Errorf("%+v", s)
	}
	if i, _ := l.Get(newID(3)); i.Phase != fleet.Draining {
		t.Errorf("phase %s", i.Phase)
	}
	if _, ok := l.Get(newID(50)); !ok {
		t.Error("the new instance is not there")
	}
}

// Whatever point of a crash the file and its WAL are from, the next start is correct: the
// files are copied while the ledger works.
func TestCrashedWithWAL(t *testing.T) {
	store, cfg, _ := shard(t, 5)
	l := open(t, cfg)
	load(t, l)
	w := l.Lead(term{epoch: 2})
	crashed := cfg
	for n := 100; n < 120; n++ {
		create(t, w, n)
		update(t, w, n, fleet.Running)
		crashed.CachePath = filepath.Join(t.TempDir(), "cache.db")
		for _, suffix := range []string{"", "-wal"} {
			if b, err := os.ReadFile(cfg.CachePath + suffix); err == nil {
				overwrite(t, crashed.CachePath+suffix, b)
			}
		}
		reopen(t, store, crashed)
	}
	closeLedger(t, l)
}

func connect(t *testing.T, path string) *sqlite3.Conn {
	t.Helper()
	conn, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func execute(t *testing.T, path, sql string) {
	t.Helper()
	conn := connect(t, path)
	if err := conn.Exec("PRAGMA locking_mode = exclusive"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Exec(sql); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

func overwrite(t *testing.T, path string, body []byte) {
	t.Helper()
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}
