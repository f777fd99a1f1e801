package android.os;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;

public class PowerManager {
    public static final int THERMAL_STATUS_NONE = 0;
    public static final int THERMAL_STATUS_MODERATE = 2;
    public static final int THERMAL_STATUS_SEVERE = 3;

    public interface OnThermalStatusChangedListener {
        void onThermalStatusChanged(int status);
    }

    public int status;
    public final List<OnThermalStatusChangedListener> listeners = new ArrayList<>();

    public int getCurrentThermalStatus() {
        return status;
    }

    public void addThermalStatusListener(Executor executor, OnThermalStatusChangedListener listener) {
        listeners.add(listener);
    }

    public void removeThermalStatusListener(OnThermalStatusChangedListener listener) {
        listeners.remove(listener);
    }

    public void set(int status) {
        this.status = status;
        for (OnThermalStatusChangedListener listener : new ArrayList<>(listeners)) listener.onThermalStatusChanged(status);
    }
}
