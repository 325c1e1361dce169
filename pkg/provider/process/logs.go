package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The logs of deleted instances are kept in a folder of the shard, so that it can be found out why an
// agent could not start or register.
const (
	logsDir = ".logs" // no name of an instance
	// keptLogs is the maximum number of logs that are kept, the newest ones.
	keptLogs = 20
	// keptLog is the maximum length of a kept log in bytes: its end.
	keptLog = 256 << 10
)

// keepLog keeps the log of an instance whose folder is about to be removed. An error, as on a full
// disk, does not delay the removal.
func (e ender) keepLog(ctx context.Context, f folder) {
	kept := filepath.Join(filepath.Dir(f.path), logsDir)
	copied, err := f.copyLog(kept)
	if copied {
		err = pruneLogs(kept)
	}
	if err != nil {
		e.logger.LogAttrs(ctx, slog.LevelWarn, "keeping the log of a process failed", slog.String("instance", f.name), slog.Any("error", err))
	}
}

// copyLog copies the end of the log, and reports whether there was one. It follows no link: an agent
// that runs as the server's user can replace its log.
func (f folder) copyLog(to string) (bool, error) {
	log, err := os.OpenFile(f.file(logFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false, err
	}
	if err := makeLogs(to); err != nil {
		return false, err
	}
	end := io.NewSectionReader(log, max(0, info.Size()-keptLog), keptLog)
	err = folder{path: to}.writeFrom(f.name+".log", end)
	return err == nil, err
}

// makeLogs makes the folder of kept logs. It refuses a link, in which other files could be removed.
func makeLogs(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder: remove it", dir)
	}
	return err
}

// pruneLogs removes all kept logs but the newest.
func pruneLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type log struct {
		name string
		at   int64
	}
	var logs []log
	for _, entry := range entries {
		if !entry.Type().IsRegular() || filepath.Ext(entry.Name()) != ".log" && !strings.HasPrefix(entry.Name(), tempPrefix) {
			continue
		}
		info, err := entry.Info()
		if absent(err) {
			continue // removed by the shard's other server
		}
		if err != nil {
			return err
		}
		logs = append(logs, log{entry.Name(), info.ModTime().UnixNano()})
	}
	slices.SortFunc(logs, func(a, b log) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.name, b.name)) })
	var errs []error
	for _, old := range logs[min(len(logs), keptLogs):] {
		if err := os.Remove(filepath.Join(dir, old.name)); !absent(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
