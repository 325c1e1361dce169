package election

import "github.com/nstance/nstance/pkg/object"

// release writes the release, so that the next leader need not wait. It is reached only from a
// term, so this server's own wait is over, and only when all work of the term has ended. If it
// fails, others notice by signs of death or by the lease.
func (m *machine) release(now instant) {
	if m.due(now, m.steppedDownAt, m.releaseFor()) {
		m.abandonRecord()
		return
	}
	if !m.mayAsk(now, releasePause) {
		return
	}
	if m.readBack {
		m.get(now)
		return
	}
	m.put(now, object.IfMatch(m.view.etag), true)
}
