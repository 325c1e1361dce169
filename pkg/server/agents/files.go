package agents

import (
	"context"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/delivery"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Files delivers files to instances; implemented by delivery.Delivery. No method blocks.
type Files interface {
	OpenKeys(id fleet.InstanceID, send func([]delivery.KeyRequest) error) *delivery.Stream[[]delivery.KeyRequest]
	CloseKeys(id fleet.InstanceID, s *delivery.Stream[[]delivery.KeyRequest])
	Submit(id fleet.InstanceID, keys map[string]string) error
	OpenFiles(id fleet.InstanceID, send func(delivery.Push) error) *delivery.Stream[delivery.Push]
	CloseFiles(id fleet.InstanceID, s *delivery.Stream[delivery.Push])
	Reported(id fleet.InstanceID, r delivery.FileReport)
	Disconnected(id fleet.InstanceID)
}

var _ Files = (*delivery.Delivery)(nil)

// KeyGenRequests sends the keys that the instance needs, and sends them again when they
// change.
func (s *Service) KeyGenRequests(_ *nstancev1.KeyGenRequestsRequest, stream nstancev1.AgentService_KeyGenRequestsServer) error {
	return s.hold(stream.Context(), func(all Files, id fleet.InstanceID) (ending, func()) {
		me := all.OpenKeys(id, func(keys []delivery.KeyRequest) error { return stream.Send(keyRequests(keys)) })
		return me, func() { all.CloseKeys(id, me) }
	})
}

// SubmitPublicKeys accepts the public halves of the requested keys.
func (s *Service) SubmitPublicKeys(
	ctx context.Context, req *nstancev1.SubmitPublicKeysRequest,
) (*nstancev1.SubmitPublicKeysResponse, error) {
	shard, id, err := s.admitted(ctx)
	if err != nil {
		return nil, err
	}
	if shard.Gone(id) {
		return nil, errRemoved()
	}
	caller, _ := rpc.CallerFrom(ctx)
	audit.On(ctx, "instance "+caller.Tenant+"/"+string(id))
	audit.Claimed(ctx, "public_key", slices.Sorted(maps.Keys(req.GetPublicKeys()))...)
	err = shard.Files().Submit(id, req.GetPublicKeys())
	var inUse delivery.KeysInUse
	switch {
	case errors.As(err, &inUse):
		var fields []string
		for _, name := range inUse {
			fields = append(fields, rpc.SubmittedKey(name))
		}
		return nil, rpc.KeysInUse("submit it", fields...)
	case errors.Is(err, delivery.ErrNoKeyStream):
		return nil, rpc.Precondition.Errorf("%w", err)
	case err != nil:
		return nil, rpc.Invalid.Errorf("%w", err)
	}
	return &nstancev1.SubmitPublicKeysResponse{}, nil
}

// ReceiveFiles sends the files that the instance lacks or has in another version.
func (s *Service) ReceiveFiles(_ *nstancev1.ReceiveFilesRequest, stream nstancev1.AgentService_ReceiveFilesServer) error {
	return s.hold(stream.Context(), func(all Files, id fleet.InstanceID) (ending, func()) {
		me := all.OpenFiles(id, func(p delivery.Push) error { return send(stream, p) })
		return me, func() { all.CloseFiles(id, me) }
	})
}

// ending tells when and why the delivery ended a stream.
type ending interface {
	Ended() <-chan struct{}
	Err() error
}

// hold keeps a server stream open until its term, the instance, the caller or the delivery
// ends it. A send in progress then fails, because returning from the handler ends the stream.
func (s *Service) hold(ctx context.Context, open func(Files, fleet.InstanceID) (ending, func())) error {
	var in entered
	var me ending
	var done func()
	if err := rpc.Aside(func() (err error) {
		if in, err = s.enter(ctx); err != nil {
			return err
		}
		if err = s.sessions.check(ctx, in.id, in.shard); err != nil {
			s.leave(in)
			return err
		}
		me, done = open(in.shard.Files(), in.id)
		return nil
	}); err != nil {
		return err
	}
	defer s.leave(in)
	defer done()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-in.shard.Done():
		return s.moved()
	case <-in.cut.done:
		return errRemoved()
	case <-me.Ended():
		return endedBy(me.Err())
	}
}

func endedBy(err error) error {
	switch {
	case errors.Is(err, delivery.ErrReplaced):
		return rpc.Conflict.Errorf("%w", err)
	case errors.Is(err, delivery.ErrSlow):
		return rpc.Exhausted.Errorf("%w", err)
	}
	return err // the stream's own error
}

func keyRequests(keys []delivery.KeyRequest) *nstancev1.KeyGenRequestsResponse {
	out := &nstancev1.KeyGenRequestsResponse{}
	for _, k := range keys {
		algorithm := nstancev1.KeyAlgorithm_KEY_ALGORITHM_ED25519
		if k.Algorithm == fleet.KeyECDSAP256 {
			algorithm = nstancev1.KeyAlgorithm_KEY_ALGORITHM_ECDSA_P256
		}
		out.Keys = append(out.Keys, &nstancev1.KeyRequest{Name: k.Name, Algorithm: algorithm})
	}
	return out
}

// send sends the files of a push and then its commit.
func send(stream nstancev1.AgentService_ReceiveFilesServer, p delivery.Push) error {
	for _, f := range p.Files {
		m := &nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_File{File: &nstancev1.File{Name: f.Name, Content: f.Content}}}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return stream.Send(&nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_Commit{
		Commit: &nstancev1.FilesCommit{ConfigHash: p.ConfigHash, Names: p.Names, Traceparent: p.Traceparent},
	}})
}

// filesReport returns the file part of a report, for at most files.MaxFiles files.
func filesReport(m *nstancev1.ReportHealthRequest) delivery.FileReport {
	r := delivery.FileReport{ConfigHash: m.GetConfigHash()}
	for _, f := range m.GetFiles()[:min(len(m.GetFiles()), files.MaxFiles)] {
		st := delivery.FileStatus{Name: f.GetName(), Error: f.GetError(), SHA256: sum(f.GetSha256()), PublicKey: sum(f.GetPublicKeySha256())}
		if f.GetNotAfter().IsValid() {
			st.NotAfter = f.GetNotAfter().AsTime()
		}
		switch f.GetState() {
		case nstancev1.FileState_FILE_STATE_PRESENT:
			st.State = delivery.Present
		case nstancev1.FileState_FILE_STATE_FAILED:
			st.State = delivery.Failed
		case nstancev1.FileState_FILE_STATE_UNSPECIFIED, nstancev1.FileState_FILE_STATE_MISSING:
			st.State = delivery.Missing
		}
		r.Files = append(r.Files, st)
	}
	return r
}

// sum parses a digest. A malformed one gives the zero Sum, which no file has.
func sum(text string) (out delivery.Sum) {
	if len(text) != hex.EncodedLen(len(out)) {
		return delivery.Sum{}
	}
	if _, err := hex.Decode(out[:], []byte(text)); err != nil {
		return delivery.Sum{}
	}
	return out
}

// Limits on reports with file changes, in addition to those accepted at the shortest
// configurable report interval: a burst, refilled at a fixed rate.
const (
	filesBurst  = 16
	filesRefill = 250 * time.Millisecond
)

// filesLimiter rate-limits an agent's file reports. Changes pass at once, within the burst,
// because a delivery waits for them. Used by one stream.
type filesLimiter struct {
	seed   maphash.Seed
	at     time.Time // of the last report passed on
	said   uint64    // digest of that report
	left   int       // changes that may still pass at once
	filled time.Time
}

func newFilesLimiter(now time.Time) *filesLimiter {
	return &filesLimiter{seed: maphash.MakeSeed(), left: filesBurst, filled: now}
}

// allows reports whether the file part of m is passed on to the shard.
func (l *filesLimiter) allows(m *nstancev1.ReportHealthRequest, now time.Time) bool {
	if gained := int(now.Sub(l.filled) / filesRefill); gained > 0 {
		l.left, l.filled = min(filesBurst, l.left+gained), now
	}
	said := l.digest(m)
	gap := now.Sub(l.at)
	if gap >= 0 && gap < minReportGap {
		if said == l.said || l.left == 0 {
			return false
		}
		l.left--
	}
	l.at, l.said = now, said
	return true
}

func (l *filesLimiter) digest(m *nstancev1.ReportHealthRequest) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	write := func(s string) {
		_, _ = h.WriteString(s) // never fails
		_ = h.WriteByte(0)
	}
	write(m.GetConfigHash())
	for _, f := range m.GetFiles()[:min(len(m.GetFiles()), files.MaxFiles)] {
		write(f.GetName())
		write(f.GetState().String())
		write(f.GetSha256())
		write(f.GetError())
	}
	return h.Sum64()
}
