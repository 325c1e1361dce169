package etcd

import (
	"errors"
	"io"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

const (
	// batch bounds the events of a response.
	batch = 1000
	// progress is the interval of progress notifications.
	progress = time.Minute
	// everyWatch is the watch ID of a response for all watches of a stream.
	everyWatch = -1
)

type watches struct {
	pb.UnimplementedWatchServer
	store *store.Store
}

// watch is one watch of a stream.
type watch struct {
	id       int64
	key, end string
	prevKV   bool
	progress bool
	puts     bool // whether puts are wanted
	deletes  bool // whether deletes are wanted
	at       int64
	said     time.Time
}

// stream is all watches of a client. One goroutine reads its requests, and one does everything
// else, so that responses are in order with events.
type stream struct {
	store   *store.Store
	to      pb.Watch_WatchServer
	watches []*watch
	next    int64
}

// Watch implements WatchServer.
func (w *watches) Watch(to pb.Watch_WatchServer) error {
	asked, failed := make(chan *pb.WatchRequest), make(chan error, 1)
	go func() {
		for {
			r, err := to.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case asked <- r:
			case <-to.Context().Done():
				return
			}
		}
	}()
	tick := time.NewTicker(progress / 4)
	defer tick.Stop()
	s := &stream{store: w.store, to: to}
	for {
		changed := w.store.Changed() // before the events are read, so that none is missed
		if err := s.send(); err != nil {
			return err
		}
		select {
		case <-changed:
		case r := <-asked:
			if err := s.answer(r); err != nil {
				return err
			}
		case now := <-tick.C:
			if err := s.remind(now); err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-to.Context().Done():
			return to.Context().Err()
		}
	}
}

func (s *stream) answer(r *pb.WatchRequest) error {
	switch r := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		return s.create(r.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		return s.cancel(r.CancelRequest.WatchId)
	case *pb.WatchRequest_ProgressRequest:
		// The client relies on having every event up to the returned revision.
		rev, err := s.sendAll()
		if err != nil {
			return err
		}
		return s.to.Send(&pb.WatchResponse{Header: header(rev), WatchId: everyWatch})
	}
	return nil
}

func (s *stream) create(r *pb.WatchCreateRequest) error {
	s.next++
	w := &watch{
		id: s.next, key: string(r.Key), end: string(r.RangeEnd), prevKV: r.PrevKv, progress: r.ProgressNotify,
		puts: !slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT), deletes: !slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
		at: r.StartRevision - 1, said: time.Now(),
	}
	rev := s.store.Revision()
	if r.StartRevision <= 0 {
		w.at = rev
	}
	if err := s.to.Send(&pb.WatchResponse{Header: header(rev), WatchId: w.id, Created: true}); err != nil {
		return err
	}
	s.watches = append(s.watches, w)
	return nil
}

func (s *stream) cancel(id int64) error {
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool { return w.id == id })
	return s.to.Send(&pb.WatchResponse{Header: header(s.store.Revision()), WatchId: id, Canceled: true})
}

// remind sends progress notifications to idle watches.
func (s *stream) remind(now time.Time) error {
	rev, err := s.sendAll()
	if err != nil {
		return err
	}
	for _, w := range s.watches {
		if !w.progress || now.Sub(w.said) < progress {
			continue
		}
		w.said = now
		if err := s.to.Send(&pb.WatchResponse{Header: header(rev), WatchId: w.id}); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) send() error {
	_, err := s.sendAll()
	return err
}

// sendAll sends every watch its events up to one revision, and returns that.
func (s *stream) sendAll() (int64, error) {
	rev := s.store.Revision()
	for _, w := range slices.Clone(s.watches) {
		for w.at < rev {
			events, upTo, err := s.store.Since(w.at, batch)
			if errors.Is(err, store.ErrCompacted) {
				if err := s.tooOld(w); err != nil {
					return 0, err
				}
				break
			}
			if err := s.tell(w, events, upTo); err != nil {
				return 0, err
			}
			w.at = upTo
		}
	}
	return rev, nil
}

// tooOld cancels a watch whose next revision has been compacted.
func (s *stream) tooOld(w *watch) error {
	s.watches = slices.DeleteFunc(s.watches, func(other *watch) bool { return other == w })
	return s.to.Send(&pb.WatchResponse{
		Header: header(s.store.Revision()), WatchId: w.id, Canceled: true, CompactRevision: s.store.Compacted(),
		CancelReason: store.ErrCompacted.Error(),
	})
}

func (s *stream) tell(w *watch, events []store.Event, upTo int64) error {
	out := &pb.WatchResponse{Header: header(upTo), WatchId: w.id}
	for _, e := range events {
		if w.wants(e.Entry) {
			out.Events = append(out.Events, w.event(e))
		}
	}
	if len(out.Events) == 0 {
		return nil
	}
	w.said = time.Now()
	return s.to.Send(out)
}

func (w *watch) wants(e *store.Entry) bool {
	if e.Deleted() && !w.deletes || !e.Deleted() && !w.puts {
		return false
	}
	if w.end == "" {
		return e.Key == w.key
	}
	return e.Key >= w.key && (w.end == "\x00" || e.Key < w.end)
}

func (w *watch) event(e store.Event) *mvccpb.Event {
	out := &mvccpb.Event{Type: mvccpb.PUT, Kv: wire(e.Entry)}
	if e.Entry.Deleted() {
		out.Type = mvccpb.DELETE
	}
	if w.prevKV {
		out.PrevKv = wire(e.Prev)
	}
	return out
}
