package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/load"
)

// bench is one run: the location of its files.
type bench struct {
	self     string // this binary
	bin      string // the folder of the real binaries
	temp     string // deleted at the end
	profiles string // kept unless empty
	progress io.Writer

	siegeTime time.Duration // the duration of each attack of the row siege

	roles     sync.Once // path of the binary that plays roles
	rolesPath string
	rolesErr  error
}

func newBench(progress io.Writer) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, fmt.Errorf("find the folder of the binaries: %w", err)
	}
	temp, err := os.MkdirTemp("", "nstance-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder to work in: %w", err)
	}
	profiles, err := os.MkdirTemp("", "nstance-bench-profiles-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for profiles: %w", err)
	}
	return &bench{self: self, bin: bin, temp: temp, profiles: profiles, progress: progress}, nil
}

// close stops what still runs and deletes its files.
func (b *bench) close() {
	os.RemoveAll(b.temp)
	os.Remove(b.profiles) // kept if it has profiles
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// folder creates a folder for a part of a row.
func (b *bench) folder(name string) (string, error) {
	dir, err := os.MkdirTemp(b.temp, name+"-")
	if err != nil {
		return "", fmt.Errorf("make a folder for %s: %w", name, err)
	}
	return dir, nil
}

// logged creates a folder, and a logger that writes to its server.log until closeLog is called.
func (b *bench) logged(name string) (dir string, logger *slog.Logger, closeLog func(), err error) {
	if dir, err = b.folder(name); err != nil {
		return "", nil, nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return "", nil, nil, err
	}
	return dir, slog.New(slog.NewTextHandler(log, nil)), func() { _ = log.Close() }, nil
}

// describeMachine describes the machine on which the figures depend. Any other load makes all of
// them worse.
func (b *bench) describeMachine(ctx context.Context) {
	text := "unknown"
	if avg, err := load.AvgWithContext(ctx); err == nil {
		text = fmt.Sprintf("%.2f", avg.Load1)
	}
	b.say("%s, %s/%s, %d CPUs, load before the run: %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), text)
}

// measure runs one row and reports its end.
func (b *bench) measure(ctx context.Context, r row) ([]figure, error) {
	b.say("\n%s: %s", r.name, r.what)
	began := time.Now()
	figures, err := b.bounded(ctx, r)
	for _, f := range figures {
		b.say("  %s", f)
	}
	if err != nil {
		b.say("  could not be measured: %v", err)
	}
	b.say("  took %s", time.Since(began).Round(100*time.Millisecond))
	return figures, err
}
