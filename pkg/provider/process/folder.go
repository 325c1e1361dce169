package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Files of an instance's folder.
const (
	lockFile     = "lock"
	lifeFile     = "life"
	stateFile    = "state.json"
	pidFile      = "pid"
	deletingFile = "deleting"
	exitFile     = "exit"
	logFile      = "agent.log"
	identityDir  = "identity"
	keysDir      = "keys"
	recvDir      = "recv"
	tempPrefix   = ".tmp-" // of a file that is being written
)

// lockPoll is the polling interval for a held lock: flock can't be cancelled by a context.
const lockPoll = 2 * time.Millisecond

// stateRecord is the content of state.json: everything known about an instance except its
// process.
type stateRecord struct {
	Tags      map[string]string `json:"tags"`
	Hostname  string            `json:"hostname"`
	Subnet    string            `json:"subnet"`
	CreatedAt time.Time         `json:"created_at"`
}

// folder is an instance's folder.
type folder struct {
	path string
	name string // base name, which is the provider ID
}

// folder returns the folder with a name, which need not exist; ok is false for a name that
// could point elsewhere.
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

// errMalformed means that state.json was not written by this provider.
var errMalformed = errors.New("malformed state.json")

// errLost means that a process runs in a folder without tags.
var errLost = errors.New("stop it manually")

func (f folder) lost(b birth) error {
	return fmt.Errorf("process %d runs in %s, whose %s is lost: %w", b.pid, f.path, stateFile, errLost)
}

// state reads state.json. If it is missing the error is fs.ErrNotExist or ENOTDIR; other errors
// except errMalformed say nothing about the instance.
func (f folder) state() (stateRecord, error) {
	data, err := os.ReadFile(f.file(stateFile))
	if err != nil {
		return stateRecord{}, err
	}
	return parseState(data)
}

func parseState(data []byte) (stateRecord, error) {
	var s stateRecord
	if err := json.Unmarshal(data, &s); err != nil || s.Tags == nil {
		return stateRecord{}, errMalformed
	}
	return s, nil
}

// birth reads the pid file; ok is false if it is not completely written yet.
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

// vm returns the VM in state now.
func (f folder) vm(s stateRecord, now provider.State) provider.VM {
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

// reason returns why the instance is in its state, if known.
func (f folder) reason(now provider.State) string {
	switch now {
	case provider.StateFailed:
		return "its process was never started"
	case provider.StateStopped:
		data, _ := os.ReadFile(f.file(exitFile)) // only known to the server that started it
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

// unborn returns the state of an instance without a process: pending while the lock is held,
// otherwise the remains of a crash, which run only if the create is repeated.
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
	life, held, err := f.lives()
	if life != nil {
		defer life.Close()
	}
	if err != nil {
		return "", err
	}
	switch b, ok, err := f.birth(); { // may have been written since
	case err != nil:
		return "", err
	case ok && b.alive():
		return provider.StateRunning, nil
	case ok:
		return provider.StateStopped, nil
	case held: // the process was not recorded: a create or delete will
		return provider.StatePending, nil
	default:
		return provider.StateFailed, nil
	}
}

// lock waits for the folder's lock, which is held until the returned file is closed. If the
// folder is removed meanwhile it returns fs.ErrNotExist, or recreates the folder if create is
// set.
func (f folder) lock(ctx context.Context, create bool) (*os.File, error) {
	for {
		if create {
			if err := os.Mkdir(f.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
		}
		file, err := os.OpenFile(f.file(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
		if create && absent(err) {
			continue // removed in between
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

// holds reports whether file is still the folder's lock file.
func (f folder) holds(file *os.File) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(f.file(lockFile))
	return err == nil && os.SameFile(mine, there)
}

// clear removes everything but the lock, state.json last, so that an interrupted removal is
// found again.
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
	// Another create may have created a new lock file in the folder by now; then it owns the
	// folder.
	err := os.Remove(f.path)
	if err != nil && !absent(err) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("remove %s: %w", f.path, err)
	}
	return nil
}

// write replaces a file atomically. It does not sync to disk: a crash of the machine, which
// could lose the file, ends the process too.
func (f folder) write(name string, data []byte) error {
	return f.writeFrom(name, bytes.NewReader(data))
}

func (f folder) writeFrom(name string, data io.Reader) error {
	temp, err := os.CreateTemp(f.path, tempPrefix+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, data)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), f.file(name))
	}
	if err != nil {
		_ = os.Remove(temp.Name()) // the first error is the cause
	}
	return err
}
