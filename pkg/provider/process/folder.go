package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// The files of an instance's folder.
const (
	lockFile     = "lock"
	stateFile    = "state.json"
	pidFile      = "pid"
	deletingFile = "deleting"
	exitFile     = "exit"
	logFile      = "agent.log"
	identityDir  = "identity"
	keysDir      = "keys"
	recvDir      = "recv"
)

// lockPoll is how often a taken lock is tried again: flock can't be told to
// give up when a context ends.
const lockPoll = 2 * time.Millisecond

// state is what state.json says: all that is known of an instance besides its
// process.
type state struct {
	Tags      map[string]string `json:"tags"`
	Hostname  string            `json:"hostname"`
	Subnet    string            `json:"subnet"`
	CreatedAt time.Time         `json:"created_at"`
}

// folder is one instance's folder.
type folder struct {
	path string
	name string // its base name, which is the provider id
}

// folder returns the folder of that name, which need not exist; ok is false for
// a name that could point elsewhere.
func (p *Provider) folder(name string) (f folder, ok bool) {
	if name == "" || len(name) > 255 || name[0] == '.' || strings.ContainsAny(name, "/\\\x00") {
		return folder{}, false
	}
	return folder{path: filepath.Join(p.root, name), name: name}, true
}

func (f folder) file(name string) string { return filepath.Join(f.path, name) }

func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// errMalformed is a state.json that nobody here wrote.
var errMalformed = errors.New("malformed state.json")

// errLost is a process that runs in a folder without tags.
var errLost = errors.New("stop it by hand")

func (f folder) lost(b birth) error {
	return fmt.Errorf("process %d runs in %s, whose %s is lost: %w", b.pid, f.path, stateFile, errLost)
}

// state reads state.json. An absent one is fs.ErrNotExist or ENOTDIR; any other
// error but errMalformed says nothing about the instance.
func (f folder) state() (state, error) {
	data, err := os.ReadFile(f.file(stateFile))
	if err != nil {
		return state{}, err
	}
	return parseState(data)
}

func parseState(data []byte) (state, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil || s.Tags == nil {
		return state{}, errMalformed
	}
	return s, nil
}

// birth reads who the instance's process is; ok is false when the child has not
// written it (in full) yet.
func (f folder) birth() (b birth, ok bool, err error) {
	data, err := os.ReadFile(f.file(pidFile))
	if absent(err) {
		return birth{}, false, nil
	}
	if err != nil {
		return birth{}, false, err
	}
	b, ok = parseBirth(string(data))
	return b, ok, nil
}

// vm describes the instance, which is in the condition now.
func (f folder) vm(s state, now provider.State) provider.VM {
	return provider.VM{
		ID:         provider.TaggedID(s.Tags),
		ProviderID: f.name,
		State:      now,
		Reason:     f.reason(now),
		Subnet:     s.Subnet,
		Hostname:   s.Hostname,
		Addresses:  []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
		Tags:       s.Tags,
		CreatedAt:  s.CreatedAt,
	}
}

// reason says why it fares so, where that is known.
func (f folder) reason(now provider.State) string {
	switch now {
	case provider.StateFailed:
		return "its process was never started"
	case provider.StateStopped:
		data, _ := os.ReadFile(f.file(exitFile)) // only the server that started it could tell
		return string(data)
	default:
		return ""
	}
}

func (f folder) condition() (provider.State, error) {
	if _, err := os.Lstat(f.file(deletingFile)); err == nil {
		return provider.StateDeleting, nil
	}
	b, ok, err := f.birth()
	if err != nil {
		return "", err
	}
	if !ok {
		return f.unborn()
	}
	if b.alive() {
		return provider.StateRunning, nil
	}
	return provider.StateStopped, nil
}

// unborn tells of an instance without a process: on its way while somebody
// holds the lock, and otherwise the leftover of a crash, which will never run
// unless its create is asked again.
func (f folder) unborn() (provider.State, error) {
	lock, err := os.Open(f.file(lockFile))
	if err == nil {
		defer lock.Close()
		err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return provider.StatePending, nil
		}
	}
	if err != nil && !absent(err) {
		return "", err
	}
	switch b, ok, err := f.birth(); { // written since
	case err != nil:
		return "", err
	case ok && b.alive():
		return provider.StateRunning, nil
	case ok:
		return provider.StateStopped, nil
	default:
		return provider.StateFailed, nil
	}
}

// lock waits for the folder's lock, which ends with the returned file and its
// copies. A folder that is removed meanwhile is fs.ErrNotExist, unless create
// is set: then it is made again.
func (f folder) lock(ctx context.Context, create bool) (*os.File, error) {
	for {
		if create {
			if err := os.Mkdir(f.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
		file, err := os.OpenFile(f.file(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
		if create && absent(err) {
			continue // removed between the two
		}
		if err != nil {
			return nil, err
		}
		if err = flock(ctx, file); err == nil {
			if f.holds(file) {
				return file, nil
			}
			err = fs.ErrNotExist
		}
		_ = file.Close() // nothing was written to it
		if create && absent(err) {
			continue
		}
		return nil, err
	}
}

func flock(ctx context.Context, file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if retry.Wait(ctx, lockPoll) != nil {
			return ctx.Err()
		}
	}
}

// holds reports whether file is still the folder's lock.
func (f folder) holds(file *os.File) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.file(lockFile))
	return err == nil && os.SameFile(mine, there)
}

// clear removes everything but the lock, state.json last: a removal that breaks
// off is still known, and found again.
func (f folder) clear() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, stateFile, deletingFile:
		default:
			if err := os.RemoveAll(f.file(e.Name())); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{stateFile, deletingFile} {
		if err := os.Remove(f.file(name)); err != nil && !absent(err) {
			return err
		}
	}
	return nil
}

// discard removes the folder. The caller holds its lock.
func (f folder) discard() error {
	if err := f.clear(); err != nil {
		return fmt.Errorf("remove %s: %w", f.path, err)
	}
	if err := os.Remove(f.file(lockFile)); err != nil && !absent(err) {
		return fmt.Errorf("remove %s: %w", f.path, err)
	}
	// Another create may have opened a lock of its own in the folder by now; then
	// the folder is that one's.
	err := os.Remove(f.path)
	if err != nil && !absent(err) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("remove %s: %w", f.path, err)
	}
	return nil
}

// write puts a file in place in one step. It is not synced to disk: what could
// lose it, a crash of the whole machine, ends the process too.
func (f folder) write(name string, data []byte) error {
	temp, err := os.CreateTemp(f.path, ".tmp-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), f.file(name))
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // the first error counts
	}
	return err
}
