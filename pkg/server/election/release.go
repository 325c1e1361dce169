package election

import "github.com/nstance/nstance/pkg/object"

// release writes that the next leader need not wait. It is reached only from a
// term, so our own wait is over, and only when nothing of the term runs any more.
// When it fails, others find out by signs of death or by the lease.
func (m *machine) release(now instant) {
	if m.due(now, m.giveUpAt, m.releaseFor()) {
		m.giveUpRecord()
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
