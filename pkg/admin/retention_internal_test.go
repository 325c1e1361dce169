package admin

import (
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/pki"
)

// TestATombstoneOutlastsWhatItRefuses: a removed operator's certificate and nonce.
func TestATombstoneOutlastsWhatItRefuses(t *testing.T) {
	if longest := max(pki.MaxOperatorLife, maxNonceLife); config.ShortestOperatorRetention <= longest {
		t.Errorf("it may be deleted after %v, and what it refuses is valid for %v", config.ShortestOperatorRetention, longest)
	}
}
