package agent

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/identity"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Files stores the sets of files that an agent receives; usually a *files.Dir. Commit is
// called by one goroutine at a time and applies a set as a whole or not at all; Report may be
// called meanwhile, and must not wait for it.
type Files interface {
	Commit(files.Set) error
	Report() files.Report
}

var _ Files = (*files.Dir)(nil)

// received opens the directory of received files and completes what a crash interrupted. An
// error does not stop the agent: it is reported to the server with the next set.
func (a *agent) received(ctx context.Context) Files {
	if a.config.RecvDir == "" {
		return nil
	}
	dir := a.config.newReceived()
	if err := a.config.claimReceived(ctx, dir); err != nil {
		a.config.Logger.LogAttrs(ctx, slog.LevelError, "could not load the received files", slog.Any("error", err))
	}
	return dir
}

// claimReceived creates the directory, so that its owner record is older than all files in it.
func (c Config) claimReceived(ctx context.Context, dir *files.Dir) error {
	if err := os.MkdirAll(c.RecvDir, 0o750); err != nil {
		return err
	}
	if err := c.recvDir(dir).claim(ctx, c, ""); err != nil {
		return err
	}
	return dir.Load()
}

func (c Config) newReceived() *files.Dir {
	return files.NewDir(files.DirConfig{Path: c.RecvDir, Mode: c.RecvMode, Now: c.Now})
}

func (a *agent) keys(ctx context.Context) Keys {
	if a.config.KeysDir == "" {
		return nil
	}
	return &keyring{
		dir:     identity.Files{Dir: a.config.KeysDir, Mode: a.config.KeysMode},
		claim:   func() error { return a.config.keysDir().claim(ctx, a.config, "") },
		entropy: a.config.Entropy, now: a.config.Now, logger: a.config.Logger,
	}
}

// apart rejects one directory for two purposes: received files must not replace a private key.
func (e *variables) apart(c Config) {
	names, dirs := []string{envIdentityDir, envKeysDir, envRecvDir}, []string{c.IdentityDir, c.KeysDir, c.RecvDir}
	for i, dir := range dirs {
		if first := slices.Index(dirs, dir); first < i {
			e.Reject(names[i], dir, "another directory than that of "+names[first])
		}
	}
}

// reportFiles adds the files to a report: the hash and files of the set in place, and the
// outcome of the last attempt to replace it.
func (h *holder) reportFiles(r *nstancev1.ReportHealthRequest) {
	if h.Files == nil {
		return
	}
	var failed map[string]string
	if last := h.failed.Load(); last != nil {
		failed = maps.Clone(*last)
	}
	report := h.Files.Report()
	r.ConfigHash = report.ConfigHash
	r.Files = make([]*nstancev1.FileStatus, 0, len(report.Files)+len(failed))
	for _, f := range report.Files {
		status := fileStatus(f)
		if why, ok := failed[f.Name]; ok {
			status.State, status.Error = nstancev1.FileState_FILE_STATE_FAILED, why
			delete(failed, f.Name)
		}
		r.Files = append(r.Files, status)
	}
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		r.Files = append(r.Files, &nstancev1.FileStatus{Name: name, State: nstancev1.FileState_FILE_STATE_FAILED, Error: failed[name]})
	}
}

const (
	// maxReport is the maximum size of a report in bytes: the server accepts messages of 64
	// KiB, and a refused one would end the heartbeat.
	maxReport = 60 << 10
	// maxShortReason is the maximum length of a file's error in a report that is otherwise too
	// long.
	maxShortReason = 40
)

// fit shortens a report that is too long for the server: first the errors are shortened, then
// the last files dropped. A dropped file counts as missing, and is reported again once others
// are repaired.
func fit(r *nstancev1.ReportHealthRequest) {
	r.Files = r.Files[:min(len(r.Files), files.MaxFiles)]
	if proto.Size(r) <= maxReport {
		return
	}
	for _, f := range r.Files {
		f.Error = strings.ToValidUTF8(f.Error[:min(len(f.Error), maxShortReason)], "")
	}
	for over := proto.Size(r) - maxReport; over > 0 && len(r.Files) > 0; over = proto.Size(r) - maxReport {
		last := r.Files[len(r.Files)-1]
		r.Files = r.Files[:len(r.Files)-max(1, min(len(r.Files), over/(proto.Size(last)+8)))]
	}
}

func fileStatus(f files.Status) *nstancev1.FileStatus {
	status := &nstancev1.FileStatus{Name: f.Name, State: nstancev1.FileState_FILE_STATE_PRESENT, Sha256: f.SHA256}
	switch {
	case f.Err != nil:
		status.State, status.Error = nstancev1.FileState_FILE_STATE_FAILED, files.Failures(f.Err, []string{f.Name})[f.Name]
	case f.SHA256 == "":
		status.State = nstancev1.FileState_FILE_STATE_MISSING
	case f.Leaf != nil:
		status.NotAfter, status.PublicKeySha256 = timestamppb.New(f.Leaf.NotAfter), f.Leaf.PublicKeySHA256
	}
	return status
}

// shown returns a report's files for the status file.
func shown(reported []*nstancev1.FileStatus) []FileStatus {
	var all []FileStatus
	for _, f := range reported {
		state := strings.ToLower(strings.TrimPrefix(f.GetState().String(), "FILE_STATE_"))
		s := FileStatus{Name: f.GetName(), State: state, SHA256: f.GetSha256(), Error: f.GetError()}
		if f.GetNotAfter() != nil {
			ends := f.GetNotAfter().AsTime()
			s.ExpiresAt = &ends
		}
		all = append(all, s)
	}
	return all
}
