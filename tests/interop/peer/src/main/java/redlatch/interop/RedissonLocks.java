package redlatch.interop;

import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;

/** Redisson's RLock, with default settings but for the watchdog's time-out and the prefix. */
final class RedissonLocks implements Locks {
    private final RedissonClient client;

    RedissonLocks(String address, long watchdogMillis, String prefix) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis);
        if (!prefix.isEmpty()) {
            config.setNameMapper(new Prefix(prefix));
        }
        config.useSingleServer().setAddress("redis://" + address);
        client = Redisson.create(config);
    }

    @Override
    public void lock(String name) {
        client.getLock(name).lock();
    }

    @Override
    public boolean tryLock(String name, long waitMillis) throws InterruptedException {
        return client.getLock(name).tryLock(waitMillis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void unlock(String name) {
        client.getLock(name).unlock();
    }

    @Override
    public boolean forceUnlock(String name) {
        return client.getLock(name).forceUnlock();
    }

    @Override
    public boolean isLocked(String name) {
        return client.getLock(name).isLocked();
    }

    @Override
    public void close() {
        client.shutdown();
    }

    private record Prefix(String prefix) implements NameMapper {
        @Override
        public String map(String name) {
            return prefix + name;
        }

        @Override
        public String unmap(String name) {
            return name.substring(prefix.length());
        }
    }
}
