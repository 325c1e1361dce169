package operators

import (
	"context"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// MaxEventPage is the maximum number of events in a page.
	MaxEventPage = 500
	// maxEventPageBytes bounds a page, like maxGroupPageBytes.
	maxEventPageBytes = 2 << 20
	// maxPendingEvents is how many events may be queued for one reader.
	maxPendingEvents = 1000
)

// Events are the shard's events. They are shared, and must not be changed.
type Events interface {
	// Complete waits a short while for the events of earlier terms, and reports whether they
	// are there.
	Complete(ctx context.Context) bool
	// Events returns the events after an ID that match, by ID.
	Events(after fleet.EventID, matches func(*fleet.Event) bool) []*fleet.Event
	// Follow subscribes to the events after an ID that match. A nil ends those that there are.
	Follow(after fleet.EventID, matches func(*fleet.Event) bool, pending int) *broadcast.Reader[*fleet.Event]
}

// ListEvents lists the events that the caller's tenant may see, oldest first.
func (s *Service) ListEvents(ctx context.Context, req *nstancev1.ListEventsRequest) (*nstancev1.ListEventsResponse, error) {
	shard, tenant, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	limit, after, err := pageOf(req.GetPageSize(), req.GetPageToken(), MaxEventPage, eventID)
	if err != nil {
		return nil, err
	}
	matches, err := matching(tenant, req)
	if err != nil {
		return nil, err
	}
	resp := &nstancev1.ListEventsResponse{EarlierMissing: !shard.Events.Complete(ctx)}
	size := 0
	for _, e := range shard.Events.Events(after, matches) {
		shown := showEvent(e)
		if size += proto.Size(shown); len(resp.Events) == limit || len(resp.Events) > 0 && size > maxEventPageBytes {
			resp.NextPageToken = resp.GetEvents()[len(resp.Events)-1].GetId()
			break
		}
		resp.Events = append(resp.Events, shown)
	}
	return resp, nil
}

// WatchEvents sends the events that ListEvents lists, a SNAPSHOT_END, and then every new one.
func (s *Service) WatchEvents(req *nstancev1.WatchEventsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchEventsResponse]) error {
	var after fleet.EventID
	if text := req.GetAfterId(); text != "" {
		var err error
		if after, err = eventID("after_id", text); err != nil {
			return err
		}
	}
	return s.watch(stream, func(w *Watches, tenant string, end ends) error {
		matches, err := matching(tenant, req)
		if err != nil {
			return err
		}
		events := w.cfg.Shard.Events
		missing := !events.Complete(stream.Context())
		reader := events.Follow(after, matches, maxPendingEvents)
		defer reader.Close()
		return pump(stream, end, reader, func(e *fleet.Event) error {
			if e == nil {
				return stream.Send(&nstancev1.WatchEventsResponse{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END, EarlierMissing: missing})
			}
			return stream.Send(&nstancev1.WatchEventsResponse{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Event: showEvent(e)})
		})
	})
}

// eventFilter is the part of a request that selects events.
type eventFilter interface {
	GetSince() *timestamppb.Timestamp
	GetGroup() string
	GetInstanceId() string
}

// matching returns whether an event is selected by a request of a tenant. Events of the shard are
// for tenant default only, since they may name machines of every tenant.
func matching(tenant string, req eventFilter) (func(*fleet.Event) bool, error) {
	var since time.Time
	if at := req.GetSince(); at != nil {
		if err := at.CheckValid(); err != nil {
			return nil, rpc.InvalidField("since", err.Error())
		}
		since = at.AsTime()
	}
	group := req.GetGroup()
	if group != "" {
		if _, err := groupName("group", group); err != nil {
			return nil, err
		}
	}
	var instance fleet.InstanceID
	if text := req.GetInstanceId(); text != "" {
		var err error
		if instance, err = instanceID("instance_id", text); err != nil {
			return nil, err
		}
	}
	return func(e *fleet.Event) bool {
		mine := e.Tenant == tenant || e.Tenant == "" && tenant == fleet.DefaultTenant
		return mine && !e.At.Before(since) && (group == "" || e.Group == group) && (instance == "" || e.Concerns(instance))
	}, nil
}

func eventID(field, text string) (fleet.EventID, error) {
	id, err := fleet.ParseEventID(text)
	if err != nil {
		return id, rpc.InvalidField(field, err.Error())
	}
	return id, nil
}

func showEvent(e *fleet.Event) *nstancev1.Event {
	out := &nstancev1.Event{
		Id: e.ID.String(), At: timestamppb.New(e.At), Kind: string(e.Kind), Tenant: e.Tenant, Group: e.Group, InstanceId: string(e.Instance),
		Replaces: string(e.Replaces), Actor: e.Actor, Reason: e.Reason, Message: e.Message,
	}
	for _, c := range e.Changes {
		out.Changes = append(out.Changes, &nstancev1.EventChange{Name: c.Name, From: c.From, To: c.To})
	}
	return out
}
