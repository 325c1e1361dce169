package agent

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/retry"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/tracing"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// maxFilesMessage allows a file that is too long, which is answered with the file's status; a
// longer message breaks the stream. In bytes.
const maxFilesMessage = 2 * files.MaxSetSize

// readFiles reads the stream of files until it ends. Uncommitted files are dropped.
func (h *holder) readFiles(service nstancev1.AgentServiceClient) func(context.Context, func()) error {
	return func(ctx context.Context, opened func()) error {
		stream, err := service.ReceiveFiles(ctx, &nstancev1.ReceiveFilesRequest{}, grpc.MaxCallRecvMsgSize(maxFilesMessage))
		if err != nil {
			return err
		}
		opened()
		staged, failures := newStaging(), 0
		for {
			event, err := stream.Recv()
			if err != nil {
				return err
			}
			if h.Files == nil {
				continue
			}
			if file := event.GetFile(); file != nil {
				staged.add(file)
			}
			if event.GetCommit() == nil {
				continue
			}
			set, err := staged.commit(event.GetCommit())
			staged = newStaging()
			began := h.Now()
			err = h.install(ctx, set, err)
			h.Tracer.Past(tracing.Remote(ctx, event.GetCommit().GetTraceparent()), tracing.Internal, "agent write files", began, h.Now(), err)
			if err == nil {
				failures = 0
				continue
			}
			// The failure is reported at once, and the server may send the same set at once.
			failures++
			if retry.Wait(ctx, rpc.Backoff().Draw(failures, h.Random)) != nil {
				return ctx.Err()
			}
		}
	}
}

// install applies a set, unless it is already refused, and has the outcome reported at once.
func (h *holder) install(ctx context.Context, set files.Set, refused error) error {
	err := refused
	if err == nil {
		err = h.Files.Commit(set)
	}
	about := []slog.Attr{slog.String("config_hash", fmt.Sprintf("%.128s", set.ConfigHash)), slog.Int("files", len(set.Names)),
		slog.Int("sent", len(set.Sent))}
	if err == nil {
		h.failed.Store(nil)
		h.Logger.LogAttrs(ctx, slog.LevelInfo, "applied a set of files", about...)
	} else {
		failed := files.Failures(err, set.Names)
		h.failed.Store(&failed)
		h.Logger.LogAttrs(ctx, slog.LevelError, "could not apply a set of files", append(about, slog.Any("error", err))...)
	}
	h.filesChanged.now()
	return err
}

// staging holds what a server has sent since its last commit. Its memory is bounded: once a
// set exceeds a limit its contents are dropped.
type staging struct {
	sent map[string][]byte
	size int // bytes
	err  error
}

func newStaging() *staging { return &staging{sent: make(map[string][]byte)} }

func (s *staging) add(f *nstancev1.File) {
	if s.err != nil {
		return
	}
	name, content := f.GetName(), f.GetContent()
	before, again := s.sent[name]
	s.size += len(content) - len(before)
	switch {
	case files.CheckName(name) != nil:
		s.err = files.CheckName(name)
	case len(content) > files.MaxFileSize:
		s.err = &files.FileError{Name: name, Err: fmt.Errorf("%d bytes: at most %d are allowed", len(content), files.MaxFileSize)}
	case s.size > files.MaxSetSize:
		s.err = fmt.Errorf("more than %d bytes at once", files.MaxSetSize)
	case len(s.sent) >= files.MaxFiles && !again:
		s.err = fmt.Errorf("more than %d files at once", files.MaxFiles)
	default:
		s.sent[name] = content
		return
	}
	s.sent = nil
}

func (s *staging) commit(c *nstancev1.FilesCommit) (files.Set, error) {
	return files.Set{ConfigHash: c.GetConfigHash(), Names: c.GetNames(), Sent: s.sent}, s.err
}
