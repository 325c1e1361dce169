package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/nstance/nstance/pkg/provider"
)

// Users is the range of users that agents run as: each agent has a user of its own, and a group
// of the same number. The zero Users means the server's own user.
type Users struct{ First, Last uint32 }

// Shared reports whether agents run as the server's own user.
func (u Users) Shared() bool { return u == Users{} }

// Bounds of Users: lower IDs belong to the system, and nobody is its overflow ID.
const (
	minUser = 1000
	maxUser = math.MaxInt32
	nobody  = 65534
)

// ParseUsers parses a range such as 200000-200999; empty text is the zero Users.
func ParseUsers(text string) (Users, error) {
	if text == "" {
		return Users{}, nil
	}
	from, to, _ := strings.Cut(text, "-")
	first, firstErr := strconv.ParseUint(from, 10, 32)
	last, lastErr := strconv.ParseUint(to, 10, 32)
	switch {
	case firstErr != nil || lastErr != nil || first < minUser || last > maxUser || first > last:
		return Users{}, fmt.Errorf("want two numbers from %d to %d such as 200000-200999", minUser, maxUser)
	case first <= nobody && last >= nobody:
		return Users{}, fmt.Errorf("the range includes %d, the system's overflow id: want another range such as 200000-200999", nobody)
	}
	return Users{uint32(first), uint32(last)}, nil
}

// credentials are the user IDs of a process: see credentials(7).
type credentials struct{ real, effective, saved, files uint32 }

// of reports whether a process belongs to a user, rather than acts on its behalf.
func (c credentials) of(user uint32) bool { return c.real == user || c.saved == user }

// usersFile is locked while a user is assigned, and holds the user assigned last.
const usersFile = ".users"

// agentDirs returns the folders that belong to the agent.
func agentDirs() []string { return []string{identityDir, keysDir, recvDir} }

// giveUser gives an instance's folders to a user of its own; nil: the server's user.
func (p *Provider) giveUser(ctx context.Context, f folder) (*syscall.Credential, error) {
	if p.users.Shared() {
		return nil, nil
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(p.root), usersFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unmade(err)
	}
	defer lock.Close()
	if err := flock(ctx, lock); err != nil {
		return nil, unmade(err)
	}
	user, err := p.freeUser(lock)
	if err != nil {
		return nil, err
	}
	// The folder itself stays the server's; the agent may traverse it.
	err = os.Chmod(f.path, 0o711)
	for _, dir := range agentDirs() {
		err = errors.Join(err, own(f.file(dir), user))
	}
	if err == nil {
		_, err = lock.WriteAt(fmt.Appendf(nil, "%10d\n", user), 0)
	}
	if err != nil {
		return nil, unmade(err)
	}
	return &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{}}, nil
}

// own changes the owner of a folder and its files.
func own(dir string, user uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Lchown(filepath.Join(dir, e.Name()), int(user), int(user)); err != nil {
			return err
		}
	}
	return os.Lchown(dir, int(user), int(user))
}

// owners counts the folders of each user, across all shards in dir.
func owners(dir string) (map[uint32]int, error) {
	shards, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	count := map[uint32]int{}
	for _, shard := range shards {
		folders, err := os.ReadDir(filepath.Join(dir, shard.Name()))
		if err != nil && !absent(err) {
			return nil, err
		}
		for _, f := range folders {
			user, ok, err := folder{path: filepath.Join(dir, shard.Name(), f.Name())}.owner()
			if err != nil {
				return nil, err
			}
			if ok {
				count[user]++
			}
		}
	}
	return count, nil
}

// owner returns the user that the folder was given to, or the server's if none; ok is false if
// it is not an instance's folder. The agent can't change it: the server owns the parent folder.
func (f folder) owner() (user uint32, ok bool, err error) {
	info, err := os.Lstat(f.file(identityDir))
	if absent(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, false, nil
	}
	return stat.Uid, true, nil
}

// freeUser returns the next user of the range, after the one assigned last, that has no
// instance and no process: a process left running could read the files of the next instance.
func (p *Provider) freeUser(lock *os.File) (uint32, error) {
	taken := map[uint32]bool{}
	running, err := processes()
	if err != nil {
		return 0, unmade(err)
	}
	for _, c := range running {
		taken[c.real], taken[c.effective], taken[c.saved], taken[c.files] = true, true, true, true
	}
	folders, err := owners(filepath.Dir(p.root))
	if err != nil {
		return 0, unmade(err)
	}
	for user := range folders {
		taken[user] = true
	}
	text := make([]byte, 10)
	_, _ = lock.ReadAt(text, 0) // a new file has none
	last, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	next := uint32(last)
	if err != nil || next < p.users.First || next > p.users.Last {
		next = p.users.Last
	}
	for range p.users.Last - p.users.First + 1 {
		if next++; next > p.users.Last {
			next = p.users.First
		}
		if !taken[next] {
			return next, nil
		}
	}
	return 0, fmt.Errorf("%w: options.user_range: all %d users are in use by instances, or by processes left by deleted ones",
		provider.ErrQuota, p.users.Last-p.users.First+1)
}
