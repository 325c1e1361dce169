package rpc

// Load returns the number of handshakes in progress, and of connections that wait for theirs.
func (h *Handshakes) Load() (inProgress, waits int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.admission.running.all, h.admission.waiting.all
}
