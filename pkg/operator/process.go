package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nstance/nstance/pkg/operator/settings"
)

// Process calls Run for the program: with its log, the real clock, and the API server of the
// pod or of KUBECONFIG. It is called once.
func Process(ctx context.Context, s settings.Settings, version string) error {
	logger := zap.New(zap.UseFlagOptions(&s.Log))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "nstance-operator"
	}
	return Run(ctx, Config{
		Settings: s, REST: config, Version: version, Host: host, ReadFile: os.ReadFile,
		Now: time.Now, Random: mathrand.Float64, Entropy: rand.Reader, Logger: logger,
	})
}
