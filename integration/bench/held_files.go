package main

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/files"
)

// heldFiles are the files of a simulated agent, in memory: with a thousand agents on one disk, the
// disk would be measured.
type heldFiles struct {
	mu     sync.Mutex
	report files.Report
}

var _ agent.Files = (*heldFiles)(nil)

// Commit implements agent.Files.
func (h *heldFiles) Commit(set files.Set) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := map[string]files.Status{}
	for _, f := range h.report.Files {
		before[f.Name] = f
	}
	h.report = files.Report{ConfigHash: set.ConfigHash}
	for _, name := range set.Names {
		f := before[name]
		f.Name = name
		if content, sent := set.Sent[name]; sent {
			sum := sha256.Sum256(content)
			f.SHA256 = hex.EncodeToString(sum[:])
		}
		h.report.Files = append(h.report.Files, f)
	}
	return nil
}

// Report implements agent.Files.
func (h *heldFiles) Report() files.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.report
}
