package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// endTries is how often a user's processes are checked, over about three seconds, as killed
// processes take a moment to end.
const endTries = 40

// ender removes instance folders and the processes of their users.
type ender struct {
	users  Users
	dir    string // shared by all shards
	logger *slog.Logger
}

// discard removes an instance's folder, after the remaining processes of its user. The caller
// holds the folder's lock.
func (e ender) discard(ctx context.Context, f folder) error {
	if err := e.endUser(ctx, f); err != nil {
		return err
	}
	e.keepLog(ctx, f)
	return f.discard()
}

// clear is discard, but keeps the folder.
func (e ender) clear(ctx context.Context, f folder) error {
	if err := e.endUser(ctx, f); err != nil {
		return err
	}
	e.keepLog(ctx, f)
	return f.clear()
}

// endUser ends all processes of the user of an instance's folder, unless it is the server's:
// what the agent started may have left its session. Until that is done the folder stays, and
// its user is not reassigned. The caller holds the folder's lock.
func (e ender) endUser(ctx context.Context, f folder) error {
	user, ok, err := e.ownUser(ctx, f)
	if err != nil {
		return fmt.Errorf("find the user of %s: %w", f.path, err)
	}
	if !ok {
		return nil
	}
	pace := retry.Backoff{First: time.Millisecond, Limit: 100 * time.Millisecond}
	for n := 1; ; n++ {
		killed := killUser(user)
		left, err := processesOf(user)
		if err != nil {
			return fmt.Errorf("list the processes of user %d: %w", user, errors.Join(killed, err))
		}
		if len(left) == 0 {
			return nil
		}
		if n == endTries {
			return tooStubborn(user, left, killed)
		}
		if err := retry.Wait(ctx, pace.Delay(n)); err != nil {
			return fmt.Errorf("end %d processes of user %d: %w", len(left), user, errors.Join(killed, err))
		}
	}
}

// endUnrecorded ends the processes that hold an instance's life lock and can't be recorded,
// since the agent that started them has ended: see adopt. The caller holds the folder's lock.
func (e ender) endUnrecorded(ctx context.Context, f folder) error {
	if _, born, err := f.birth(); born || err != nil {
		return err
	}
	pid, held, err := f.holder()
	if err != nil || !held || pid != 0 {
		return err
	}
	return e.endUser(ctx, f)
}

// tooStubborn returns an error about processes of a user that don't end.
func tooStubborn(user uint32, left []int, why error) error {
	const told = 10
	err := fmt.Errorf("%d processes of user %d don't end, pids %d: kill them manually, the instance is not deleted until then",
		len(left), user, left[:min(told, len(left))])
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// ownUser returns the user of an instance's folder; ok is false unless the user is in the range
// and owns only this folder.
func (e ender) ownUser(ctx context.Context, f folder) (user uint32, ok bool, err error) {
	user, ok, err = f.owner()
	if err != nil || !ok || e.users.Shared() || user < e.users.First || user > e.users.Last {
		return 0, false, err
	}
	folders, err := owners(e.dir)
	if err != nil {
		return 0, false, err
	}
	if n := folders[user]; n != 1 {
		e.logger.LogAttrs(ctx, slog.LevelWarn, "user has several folders: leaving its processes running",
			slog.String("instance", f.name), slog.Any("user", user), slog.Int("folders", n))
		return 0, false, nil
	}
	return user, true, nil
}

// processesOf returns the PIDs of a user's running processes.
func processesOf(user uint32) ([]int, error) {
	running, err := processes()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(running, func(_ int, c credentials) bool { return !c.of(user) })
	return slices.Sorted(maps.Keys(running)), nil
}

// killEach kills the processes of a user one by one.
func killEach(user uint32) error {
	pids, err := processesOf(user)
	for _, pid := range pids {
		err = errors.Join(err, killOne(pid, user))
	}
	return err
}

// killOne kills a process if it belongs to a user. It opens the handle before the check: see
// birth.signal.
func killOne(pid int, user uint32) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // releases the handle, not the process
	c, err := credentialsOf(pid)
	if errors.Is(err, errNoProcess) || err == nil && !c.of(user) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
