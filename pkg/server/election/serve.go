package election

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

const (
	lineTimeout  = 10 * time.Second // for a peer to take one line
	drainTimeout = 100 * time.Millisecond
)

// notice is the published state: this server's record, or none.
type notice struct {
	record Record
	etag   object.ETag
}

func (n notice) held() bool { return n.record.Holder != "" }

// board streams the latest notice to any number of peers. Slow peers skip outdated notices.
type board struct {
	server string
	joined func() // called when a peer starts to listen

	mu      sync.Mutex
	latest  notice
	asked   uint64 // the last question
	changed chan struct{}
	readers sync.WaitGroup
	closed  bool
}

func newBoard(server string, joined func()) *board {
	return &board{server: server, joined: joined, changed: make(chan struct{})}
}

func (b *board) post(n notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest = n
	close(b.changed)
	b.changed = make(chan struct{})
}

// postQuestion sends a question to all peers.
func (b *board) postQuestion(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = id
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) read() (notice, uint64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest, b.asked, b.changed
}

// join registers a reader; drain waits for its last line.
func (b *board) join() (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return func() {}
	}
	b.readers.Add(1)
	return b.readers.Done
}

// drain gives the readers a moment to send their last line.
func (b *board) drain() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		b.readers.Wait()
		close(gone)
	}()
	t := time.NewTimer(drainTimeout)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	}
}

// ServeHTTP serves GET /leader as newline-delimited JSON: this server's holder and, while it
// holds the record, each change of it. The response ends when the record is lost.
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "method not allowed, want GET", http.StatusMethodNotAllowed)
		return
	}
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // otherwise the answer waits for the body
		http.Error(w, "a request has no body", http.StatusBadRequest)
		return
	}
	defer b.join()()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	// The request has been read: from here on, the connection is only watched for its end, which
	// must not be caused by a read timeout. Not every ResponseWriter supports deadlines.
	_ = control.SetReadDeadline(time.Time{})
	b.stream(r.Context(), lineWriter{control, json.NewEncoder(w)})
	// The end of the answer is written after this, and the last line's deadline may be over.
	_ = control.SetWriteDeadline(time.Now().Add(lineTimeout))
}

func (b *board) stream(ctx context.Context, w lineWriter) {
	first, asked, changed := b.read()
	line := Line{Server: b.server}
	if first.held() {
		line.ETag, line.Rev, line.Released, line.Record = first.etag, first.record.Rev, first.record.Released, &first.record
	}
	last, heard := first, asked // earlier questions are not sent to new readers
	b.joined()
	for w.write(line) == nil && last.held() && !last.record.Released {
		next := last
		for next == last && asked == heard {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			next, asked, changed = b.read()
		}
		if !next.held() || next.record.Epoch != last.record.Epoch {
			return
		}
		line = Line{ETag: next.etag, Rev: next.record.Rev, Released: next.record.Released}
		if next.record.retimed(last.record) {
			line.Record = &next.record
		}
		if asked != heard {
			line.Ask = asked
		}
		last, heard = next, asked
	}
}

type lineWriter struct {
	control *http.ResponseController
	encode  *json.Encoder
}

// write sends one line. It gives up on a peer that does not read, whatever the server's write
// timeout.
func (w lineWriter) write(l Line) error {
	// Not every ResponseWriter supports deadlines; the server's apply otherwise.
	_ = w.control.SetWriteDeadline(time.Now().Add(lineTimeout))
	if err := w.encode.Encode(l); err != nil {
		return err
	}
	return w.control.Flush()
}
