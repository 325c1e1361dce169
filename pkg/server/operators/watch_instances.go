package operators

import (
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ResumeWithin is how long instance watches can be resumed after the last watch of the same
// kind has ended.
const ResumeWithin = time.Minute

type instanceHub = broadcast.Hub[fleet.InstanceID, *nstancev1.InstanceStatus]

// WatchInstances sends the caller's draining or deleting instances, a SNAPSHOT_END, and then
// every instance that starts to drain, is being deleted, or is gone. With all it sends
// instances of every phase. A watch that resumes gets what has changed since instead of the
// snapshot.
func (s *Service) WatchInstances(
	req *nstancev1.WatchInstancesRequest, stream grpc.ServerStreamingServer[nstancev1.WatchInstancesResponse],
) error {
	from, err := parseResumeToken(req.GetResumeToken())
	if err != nil {
		return err
	}
	return s.watch(stream, func(w *Watches, tenant string, end ends) error {
		hub, here := w.leaving, resumeToken{epoch: w.cfg.Epoch, writer: writerMark(w.cfg.Writer), all: req.GetAll()}
		if here.all {
			hub = w.every
		}
		sub := hub.Resume(func(i *nstancev1.InstanceStatus) bool { return i.GetTenant() == tenant }, from.within(here))
		defer sub.Close()
		return pump(stream, end, sub, func(e broadcast.Item[fleet.InstanceID, *nstancev1.InstanceStatus]) error {
			here.revision = e.Revision
			event := &nstancev1.WatchInstancesResponse{
				Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Instance: e.Value, ResumeToken: here.String(), Resumed: e.Resumed,
			}
			if e.End {
				event.Type = nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END
			}
			return stream.Send(event)
		})
	})
}

// follow returns the hub of all instances, or of leaving ones. A full snapshot includes
// tombstones only if it is of all instances.
func (w *Watches) follow(all bool) *instanceHub {
	return broadcast.NewHub(broadcast.Config[fleet.InstanceID, *nstancev1.InstanceStatus]{
		Keys: func() (ids []fleet.InstanceID) {
			for _, i := range w.cfg.Shard.Instances.Instances() {
				if all || leaves(i) && i.Phase != fleet.Deleted {
					ids = append(ids, i.ID)
				}
			}
			return ids
		},
		Look: func(id fleet.InstanceID, last *nstancev1.InstanceStatus, known bool) (*nstancev1.InstanceStatus, bool) {
			return w.currentInstance(all, id, last, known)
		},
		Digest:  digestInstance,
		Compare: func(a, b fleet.InstanceID) int { return strings.Compare(string(a), string(b)) },
		Initial: func(i *nstancev1.InstanceStatus) bool { return all || !isDeleted(i) },
		Last:    isDeleted, Linger: ResumeWithin, MaxPending: maxPendingKeys,
	})
}

// currentInstance returns the current status of an instance. If its record is gone and its end
// was not seen, it is deleted.
func (w *Watches) currentInstance(
	all bool, id fleet.InstanceID, last *nstancev1.InstanceStatus, known bool,
) (*nstancev1.InstanceStatus, bool) {
	i, ok := w.cfg.Shard.Instances.Get(id)
	switch {
	case ok && (all || leaves(i)):
		return statusOf(w.cfg.Shard, i), true
	case ok || !known || isDeleted(last):
		return nil, false
	}
	end := proto.CloneOf(last)
	end.Phase, end.DeletedAt, end.Connected = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED, timestamppb.New(w.cfg.Now()), false
	end.CertificateExpiresAt, end.FilesUpToDate = nil, nil
	return end, true
}

func leaves(i fleet.Instance) bool {
	return i.Phase == fleet.Draining || i.Phase == fleet.Deleting || i.Phase == fleet.Deleted
}

func isDeleted(i *nstancev1.InstanceStatus) bool {
	return i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
}

// digestInstance ignores the time of the last report, since it changes with every report. The
// status is new and not shared yet, so it is changed in place.
func digestInstance(i *nstancev1.InstanceStatus) broadcast.Digest {
	at := i.GetLastReportAt()
	i.LastReportAt = nil
	d := digest(i)
	i.LastReportAt = at
	return d
}
