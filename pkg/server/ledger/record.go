package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tailscale/hujson"

	"github.com/nstance/nstance/pkg/record"
)

const suffix = ".json"

// readEpoch reads only the epoch of a document, which may have comments and be malformed
// otherwise; 0 if there is none.
func readEpoch(body []byte) uint64 {
	plain, err := hujson.Standardize(bytes.Clone(body))
	if err != nil {
		return 0
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(plain, &fields) != nil {
		return 0
	}
	epoch, err := strconv.ParseUint(string(fields["epoch"]), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// maxEpoch is the highest epoch that a term rises to at once. A higher number is damage,
// unless the terms of this shard have reached it one by one.
const maxEpoch = record.MaxNumber

// inReach checks an epoch that was read. term is the latest that this process led in.
func inReach(epoch, term uint64) error {
	if highest := max(maxEpoch, term); epoch > highest {
		return fmt.Errorf("epoch: %d, want at most %d", epoch, highest)
	}
	return nil
}
